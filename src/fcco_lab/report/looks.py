"""Line styles of the page: colour by method, and a dash with a mark that no other line has."""

from collections.abc import Iterable, Mapping
from typing import Any

from fcco_lab.presentation.methods import style_of

__all__ = ["DASHES", "MARKS", "look", "numbered"]

DASHES = ("solid", "dash", "dot", "longdash", "dashdot")

MARKS = ("", "circle", "square", "triangle", "diamond", "x", "star", "cross")
"""With the dashes 40 pairs, so that lines can be told apart without their colours."""

def numbered(labels: Iterable[str]) -> dict[str, int]:
    """A number for every label of the page, so that it has one look in all figures."""
    return {label: number for number, label in enumerate(dict.fromkeys(labels))}


def look(config: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The style of a line for the script of the page.

    Examples:
        >>> look({"method": "sox"}, 9)
        {'colour': ('#d55e00', '#ff8a3d'), 'dash': 'dashdot', 'mark': 'circle'}
    """
    return {
        "colour": tuple(style_of(config["method"])[1:]),
        "dash": DASHES[number % len(DASHES)],
        "mark": MARKS[number % len(MARKS)],
    }
