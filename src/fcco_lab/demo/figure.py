"""The figure of the demo: one panel per part."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fcco_lab.demo.part import Outcome, Part
from fcco_lab.presentation.canvas import make_canvas, save, scale_as_log

__all__ = ["draw"]

_STYLES = (
    ("#0072b2", "-"),
    ("#d55e00", (0, (5, 1.6))),
    ("#009e73", (0, (1.2, 1.2))),
    ("#7a7a7a", (0, (5, 1.4, 1.2, 1.4))),
    ("#cc79a7", (0, (8, 2))),
)
"""Colours and dashes, from the last contender to the first."""


def draw(
    parts: Sequence[Part],
    found: Mapping[tuple[str, str], Outcome],
    path: Path,
    *,
    narrow: bool = False,
) -> None:
    """Draw the outcomes, by title and label, of those contenders that were run."""
    parts = [part for part in parts if any(title == part.title for title, _ in found)]
    costs = [part.cost for part in parts]
    figure, axes = make_canvas(len(parts), xlabels=costs, ylabel="", narrow=narrow)
    for place, part in zip(axes, parts, strict=True):
        lows = [1.0]
        line_styles = _STYLES[: len(part.contenders)]
        for label, (colour, dash) in zip(reversed(part.contenders), line_styles, strict=True):
            if outcome := found.get((part.title, label)):
                width = 2.4 if label == part.emphasis else 1.6
                line = {"color": colour, "ls": dash, "lw": width, "label": label}
                place.plot(outcome.cost, outcome.objective, **line)
                lows += outcome.objective
        scale_as_log(place, bottom=min(low for low in lows if low > 0) / 1.3)
        place.set_title(part.title, fontsize=10)
        place.set_ylabel(part.objective, fontsize=9)
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.22)}
        place.legend(fontsize=8.5, frameon=False, reverse=True, handlelength=2.8, **below)
    save(figure, axes, path, order=(), title="")
