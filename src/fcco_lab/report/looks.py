"""Line styles of the page: colour by method, and a dash with a mark that no other line has."""

from collections.abc import Iterable, Mapping
from typing import Any

from fcco_lab.entries import ENTRIES

__all__ = ["DASHES", "MARKS", "look", "numbered"]

DASHES = ("solid", "dash", "dot", "longdash", "dashdot")

MARKS = ("", "circle", "square", "triangle", "diamond", "x", "star", "cross")
"""With the dashes 40 pairs, so that lines can be told apart without their colours."""

_OTHERS = (("#57534e", "#d6d3d1"), ("#a21caf", "#f0abfc"), ("#0f766e", "#5eead4"))
"""Of methods that are not registered."""


def numbered(labels: Iterable[str]) -> dict[str, int]:
    """A number for every label of the page, so that it has one look in all figures."""
    return {label: number for number, label in enumerate(dict.fromkeys(labels))}


def look(config: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The style of a line for the script of the page.

    Examples:
        >>> look({"method": "sox"}, 9)
        {'colour': ('#d55e00', '#ff8a3d'), 'dash': 'dashdot', 'mark': 'circle'}
    """
    entry = ENTRIES.get(config["method"])
    return {
        "colour": _OTHERS[number % len(_OTHERS)] if entry is None else entry.colours,
        "dash": DASHES[number % len(DASHES)],
        "mark": MARKS[number % len(MARKS)],
    }
