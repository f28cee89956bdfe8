"""Line styles of contenders: colour by method, dash by step rule, mark by setting."""

from collections.abc import Mapping
from typing import Any

from fcco_lab.entries import ENTRIES

__all__ = ["DASHES", "MARKS", "look"]

DASHES = {
    "plain": "solid",
    "normalized": "dash",
    "adam": "dot",
    "projected": "longdash",
    "amsgrad": "dashdot",
}

MARKS = ("", "circle", "square", "diamond", "triangle-up", "x", "star", "cross")
"""The first setting of a contender has none."""

_OTHER = ("#57534e", "#d6d3d1")


def look(config: Mapping[str, Any], setting: int) -> dict[str, Any]:
    """The style of a line for the script of the page; ``setting`` numbers the settings.

    Examples:
        >>> look({"method": "sox", "update": "normalized"}, 0)
        {'colour': ('#d55e00', '#ff8a3d'), 'dash': 'dash', 'mark': ''}
    """
    entry = ENTRIES.get(config["method"])
    return {
        "colour": _OTHER if entry is None else entry.colours,
        "dash": DASHES.get(config["update"], "longdashdot"),
        "mark": MARKS[setting % len(MARKS)],
    }
