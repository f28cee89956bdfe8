"""How a contender looks on every plot: colour by method, dash by step rule, mark by setting."""

from collections.abc import Mapping
from typing import Any

__all__ = ["COLOURS", "DASHES", "MARKS", "look"]

COLOURS = {
    "cross-entropy": ("#6b7280", "#9aa3af"),
    "min-max": ("#111827", "#f3f4f6"),
    "sox": ("#0072b2", "#56b4e9"),
    "msvrm-v1": ("#b87400", "#f0ad1f"),
    "msvrm-v2": ("#00805d", "#1fb88a"),
    "msvrm-v3": ("#b8408a", "#ec8fc4"),
    "variant-v1": ("#5b3fa8", "#a893f5"),
    "variant-v2": ("#c2410c", "#ff7a45"),
    "variant-v3": ("#747400", "#e0d84a"),
    "soap": ("#0b7f8a", "#5fd6e0"),
    "bsgd": ("#7b3f00", "#c79a6b"),
}
"""On a light and on a dark page; the most used are after Okabe and Ito."""

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
        {'colour': ('#0072b2', '#56b4e9'), 'dash': 'dash', 'mark': ''}
    """
    return {
        "colour": COLOURS.get(config["method"], _OTHER),
        "dash": DASHES.get(config["update"], "longdashdot"),
        "mark": MARKS[setting % len(MARKS)],
    }
