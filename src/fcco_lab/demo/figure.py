"""The figure of the demo: one panel per part."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fcco_lab.demo.part import Outcome, Part
from fcco_lab.presentation.canvas import make_canvas, save, scale_as_log

__all__ = ["draw"]

_STYLES = (
    ("#0072b2", "-", "o"),
    ("#d55e00", (0, (5, 1.6)), "s"),
    ("#009e73", (0, (1.2, 1.2)), "^"),
    ("#9a9a9a", (0, (5, 1.4, 1.2, 1.4)), "v"),
)
"""Colours, dashes and marks, from the last contender to the first; they differ in grey too."""


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
        lows, count = [1.0], len(part.contenders)
        place.set_xscale("log")
        for label, (colour, dash, mark) in zip(
            reversed(part.contenders), _STYLES[:count], strict=True
        ):
            if outcome := found.get((part.title, label)):
                width = 2.4 if label in part.emphasis else 1.6
                few = len(outcome.cost) <= len(part.shown)
                line = {"color": colour, "ls": dash, "lw": width, "label": label}
                place.plot(
                    outcome.cost, outcome.objective, marker=mark if few else "", ms=5, **line
                )
                lows += outcome.objective
        place.set_xticks(part.shown, [f"{x:g}" for x in part.shown], minor=False)
        place.set_xticks([], minor=True)
        if part.logarithmic:
            scale_as_log(place, bottom=max(1e-8, min(low for low in lows if low > 0) / 1.3))
        else:
            place.set_ylim(0, 1)
        place.set_title(part.title, fontsize=10)
        place.set_ylabel(part.objective, fontsize=9)
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.22)}
        place.legend(fontsize=8.5, frameon=False, reverse=True, handlelength=2.8, **below)
    save(figure, axes, path, order=(), title="")
