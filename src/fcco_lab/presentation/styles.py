"""Line styles: the same colour and dash for a contender in every figure, a mark in each."""

from collections.abc import Iterable
from typing import Any

from fcco_lab.presentation.methods import UPDATES, contenders, label_and_colour
from fcco_lab.presentation.naming import in_order

__all__ = ["styles"]

_DASHES = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (5, 1.4, 1.2, 1.4)), (0, (9, 2.5)))
"""Of the step rules, in their order."""

_MARKS = ("", "o", "s", "^", "D", "X", "*", "P")
_OTHERS = ("#0072b2", "#d55e00", "#009e73", "#aa3e98", "#e69f00", "#56b4e9", "#333333")


def styles(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Arguments of matplotlib's ``plot`` by label, in the order of a legend.

    The method gives the colour and the mark, the step rule the dash, and contenders with one step
    rule are adjacent; settings after a comma get a mark of their own. Other labels take the colours
    in turn. Dash and mark alone tell eight methods apart.

    Examples:
        >>> found = styles(["AdaMSVRM-v1", "MSVRM-v2", "2 blocks", "MSVRM-v1"])
        >>> found["MSVRM-v1"]["color"] == found["AdaMSVRM-v1"]["color"]
        True
        >>> list(found)
        ['MSVRM-v1', 'MSVRM-v2', 'AdaMSVRM-v1', '2 blocks']
        >>> [style["marker"] for style in found.values()]
        ['', 'o', '', 's']
    """
    known = contenders()
    found: dict[str, dict[str, Any]] = {}
    marked: list[tuple[str, str]] = []
    others = 0
    for label in in_order(labels):
        name, _, settings = label.partition(",")
        if name in known:
            method, update = known[name]
            colour, dash = label_and_colour(method)[1], _DASHES[UPDATES.index(update)]
        else:
            method, settings = "", label
            colour = _OTHERS[others % len(_OTHERS)]
            dash = _DASHES[others // len(_OTHERS) % len(_DASHES)]
            others += 1
        if (method, settings) not in marked:
            marked.append((method, settings))
        number = marked.index((method, settings)) % len(_MARKS)
        # About six marks a line; those of lines that share their points start at other places.
        marks = {"marker": _MARKS[number], "ms": 4.5, "mew": 0, "markevery": (0.02 * number, 0.16)}
        found[label] = {"color": colour, "ls": dash, **marks}
    rules = {name: UPDATES.index(update) for name, (_, update) in known.items()}
    order = sorted(found, key=lambda label: rules.get(label.partition(",")[0], len(UPDATES)))
    return {label: found[label] for label in order}
