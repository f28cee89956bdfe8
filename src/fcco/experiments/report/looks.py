"""How a contender looks on every plot: colour by method, dash by step rule, mark by setting."""

from collections.abc import Mapping
from typing import Any

__all__ = ["COLOURS", "DASHES", "MARKS", "look"]

COLOURS = {
    "cross-entropy": ("#555555", "#a8adb5"),
    "min-max": ("#96680f", "#d0a35a"),
    "sox": ("#d55e00", "#ff8a3d"),
    "soap": ("#0b7f8a", "#5fd6e0"),
    "bsgd": ("#111827", "#f3f4f6"),
    "msvrm-v1": ("#0072b2", "#4ba3e3"),
    "msvrm-v2": ("#008a64", "#1fb88a"),
    "msvrm-v3": ("#aa3e98", "#e58bd3"),
    "msvrm-v1-sp": ("#5b3fa8", "#a893f5"),
    "msvrm-v2-sp": ("#7b3f00", "#c79a6b"),
    "variant-v1": ("#2a8fcc", "#9fd8ff"),
    "variant-v2": ("#b87d00", "#f0b53a"),
    "variant-v3": ("#7b8a00", "#c5d04a"),
}
"""On a light and on a dark page; the hues are those of the figures, after Okabe and Ito."""

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
    """What the page's script needs to draw a line; ``setting`` counts a contender's settings.

    Examples:
        >>> look({"method": "sox", "update": "normalized"}, 0)
        {'colour': ('#d55e00', '#ff8a3d'), 'dash': 'dash', 'mark': ''}
    """
    return {
        "colour": COLOURS.get(config["method"], _OTHER),
        "dash": DASHES.get(config["update"], "longdashdot"),
        "mark": MARKS[setting % len(MARKS)],
    }
