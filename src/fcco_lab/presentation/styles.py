"""Line styles: the same colour and dash for a contender in every figure, a mark in each."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from fcco_lab.presentation.methods import UPDATES, contenders, style_of
from fcco_lab.presentation.naming import in_order

__all__ = ["Style", "styles"]

_DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.6)),
    (0, (1.2, 1.2)),
    (0, (5, 1.4, 1.2, 1.4)),
    (0, (9, 2.5)),
)
"""Of the step rules, in their order."""

_MARKS = ("", "o", "s", "^", "D", "X", "*", "P")
_OTHERS = ("#0072b2", "#d55e00", "#009e73", "#aa3e98", "#e69f00", "#56b4e9", "#333333")


class Style(NamedTuple):
    """Colour, dash and mark, for matplotlib."""

    colour: str
    dash: Any
    mark: str

    def line(self, points: int) -> dict[str, Any]:
        """The arguments of a line with this number of points; about six of them have a mark."""
        every = max(1, points // 6)
        # Marks of lines that share their points would lie on one another.
        start = _MARKS.index(self.mark) * every // len(_MARKS)
        marks = {"marker": self.mark, "ms": 4.5, "mew": 0, "markevery": (start, every)}
        return {"color": self.colour, "ls": self.dash, **marks}


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """Styles by label, in the order of a legend: the method gives the colour and the mark, the step
    rule the dash, and contenders with one step rule are adjacent; other labels take the colours in
    turn. Dash and mark alone tell eight methods apart.

    Examples:
        >>> found = styles(["AdaMSVRM-v1", "MSVRM-v2", "2 blocks", "MSVRM-v1"])
        >>> found["MSVRM-v1"].colour == found["AdaMSVRM-v1"].colour
        True
        >>> list(found)
        ['MSVRM-v1', 'MSVRM-v2', 'AdaMSVRM-v1', '2 blocks']
        >>> [style.mark for style in found.values()]
        ['', 'o', '', 's']
    """
    known = contenders()
    rank = {name: UPDATES.index(update) for name, (_, update) in known.items()}
    ordered = sorted(in_order(labels), key=lambda label: rank.get(label, len(UPDATES)))
    others = [label for label in ordered if label not in known]
    methods = dict.fromkeys(known[label][0] for label in ordered if label in known)
    marks = {name: _MARKS[k % len(_MARKS)] for k, name in enumerate([*methods, *others])}
    found = {}
    for label in ordered:
        if label in known:
            method, _ = known[label]
            found[label] = Style(style_of(method).light, _DASHES[rank[label]], marks[method])
        else:
            turn, place = divmod(others.index(label), len(_OTHERS))
            found[label] = Style(_OTHERS[place], _DASHES[turn % len(_DASHES)], marks[label])
    return found
