"""Figures of runs as PNG files: panels of mean curves, three costs side by side, profiles."""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fcco_lab.presentation.canvas import make_canvas, save, scale_as_log
from fcco_lab.presentation.curves import check_seeds, mean_curve
from fcco_lab.presentation.naming import contender, grouped
from fcco_lab.presentation.profiles import Profiles
from fcco_lab.presentation.styles import styles
from fcco_lab.runs import AXES, QUANTITIES, Record

__all__ = ["plot_axes", "plot_panels", "plot_profiles"]

Panel = tuple[str, Sequence[Record], str]
"""A title, the runs, and the horizontal axis: "samples", "queries" or "seconds"."""


def plot_axes(
    records: Sequence[Record], path: Path | io.BytesIO, *, title: str, **options: Any
) -> None:
    """The same runs, of one data set, against samples, oracle queries and CPU seconds."""
    plot_panels([("", records, x) for x in AXES], path, title=title, share_y=True, **options)


def plot_panels(
    panels: Sequence[Panel],
    path: Path | io.BytesIO,
    *,
    by: Callable[[Record], str] = contender,
    y: str = "objective",
    title: str,
    share_y: bool = False,
) -> None:
    """One line per group of ``by`` in each panel: mean and deviation over its seeds.

    Diverged runs are not drawn; the panel says how many. ``share_y``: all panels use one scale,
    for panels of the same data set.
    """
    line_styles = styles(by(record) for _, records, _ in panels for record in records)
    xlabels = list(dict.fromkeys(AXES[x] for _, _, x in panels))
    ylabel = QUANTITIES.get(y, y)
    figure, axes = make_canvas(len(panels), xlabels=xlabels, ylabel=ylabel, share_y=share_y)
    bottoms = []
    for place, (name, records, x) in zip(axes, panels, strict=True):
        bottoms.append(_draw(place, grouped(records, by), x, y, line_styles))
        place.set_title(name, fontsize=10)
    for place, bottom in zip(axes, bottoms, strict=True):
        # A band may reach below zero, which a log scale cannot show: the lines set the range.
        low = min(bottoms) if share_y else bottom
        top = max(other.dataLim.y1 for other in place.get_shared_y_axes().get_siblings(place))
        if y == "objective" and low < math.inf:
            scale_as_log(place, bottom=low)
        elif low < top:
            place.set_ylim(low, top + 0.04 * (top - low))
    save(figure, axes, path, order=line_styles, title=title)


def _draw(
    place: Any,
    groups: Mapping[str, Sequence[Record]],
    x: str,
    y: str,
    line_styles: Mapping[str, dict[str, Any]],
) -> float:
    """The lower end of the axis: below all lines, or below a metric after the start."""
    bottom = math.inf
    lost = []
    for label, runs in groups.items():
        check_seeds(runs)
        if diverged := sum(run["status"] == "diverged" for run in runs):
            lost.append(f"{label} {diverged} of {len(runs)}")
        grid, mean, sd = mean_curve(runs, x, y)
        if not len(grid):
            continue
        place.plot(grid, mean, lw=1.6, label=label, **line_styles[label])
        if sd.any():
            colour = line_styles[label]["color"]
            place.fill_between(grid, mean - sd, mean + sd, color=colour, alpha=0.15, lw=0)
        if y == "objective":
            bottom = min(bottom, float(np.min(mean[mean > 0], initial=math.inf)) / 1.4)
        else:
            bottom = min(bottom, float(np.quantile(mean, 0.15)))
    if lost:
        # Objectives fall from the top left and metrics rise to the top right: a corner is free.
        height, end = (0.97, "top") if y == "objective" else (0.03, "bottom")
        text, frame = "\n".join(["diverged:", *lost]), place.transAxes
        place.text(0.97, height, text, transform=frame, ha="right", va=end, fontsize=8)
    place.locator_params(axis="x", nbins=5)
    return bottom


def plot_profiles(
    profiles: Profiles, path: Path | io.BytesIO, *, cost: str = "queries", title: str
) -> None:
    """Performance profiles, as ``fcco_lab.presentation.profiles.profile`` returns them."""
    line_styles = styles(profiles)
    xlabel = f"{AXES[cost]}: multiple of the best contender's"
    figure, axes = make_canvas(1, xlabels=[xlabel], ylabel="share of data sets solved")
    # Steps often coincide: wide lines are drawn first, so that their edges stay visible.
    widths = np.linspace(3.2, 1.4, len(line_styles))
    for (label, style), width in zip(line_styles.items(), widths, strict=True):
        axes[0].step(*profiles[label], where="post", lw=width, label=label, **style)
    axes[0].set_xscale("log", base=2)
    axes[0].xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes[0].set_ylim(-0.03, 1.04)
    save(figure, axes, path, order=line_styles, title=title)
