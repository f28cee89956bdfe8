"""Line styles: the same colour and dash for a contender in every figure."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from fcco_lab.entries import ENTRIES
from fcco_lab.presentation.naming import CONTENDERS, in_order

__all__ = ["Style", "styles"]

_DASHES: dict[str, Any] = {
    "plain": "-",
    "normalized": (0, (5, 1.6)),
    "adam": (0, (1.2, 1.2)),
    "amsgrad": (0, (5, 1.4, 1.2, 1.4)),
    "projected": (0, (9, 2.5)),
}
_OTHERS = ("#0072b2", "#d55e00", "#009e73", "#aa3e98", "#e69f00", "#56b4e9", "#333333")


class Style(NamedTuple):
    """Colour and dash, for matplotlib."""

    colour: str
    dash: Any


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """Styles by label, in the order of a legend: the method gives the colour and the step rule the
    dash, and contenders with one step rule are adjacent; other labels take the colours in turn.

    Examples:
        >>> found = styles(["AdaMSVRM-v1", "MSVRM-v2", "2 blocks", "MSVRM-v1"])
        >>> found["MSVRM-v1"].colour == found["AdaMSVRM-v1"].colour
        True
        >>> list(found)
        ['MSVRM-v1', 'MSVRM-v2', 'AdaMSVRM-v1', '2 blocks']
    """
    rules = list(_DASHES)
    rank = {name: rules.index(update) for name, (_, update) in CONTENDERS.items()}
    ordered = sorted(in_order(labels), key=lambda label: rank.get(label, len(rules)))
    others = [label for label in ordered if label not in CONTENDERS]
    found = {}
    for label in ordered:
        if label in CONTENDERS:
            method, update = CONTENDERS[label]
            found[label] = Style(ENTRIES[method].colours[0], _DASHES[update])
        else:
            turn, place = divmod(others.index(label), len(_OTHERS))
            found[label] = Style(_OTHERS[place], list(_DASHES.values())[turn % len(_DASHES)])
    return found
