"""Figures of runs as PNG files: panels of mean curves, three costs side by side, profiles."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fcco_lab.presentation.canvas import make_canvas, save, scale_as_log
from fcco_lab.presentation.curves import check_seeds, mean_curve
from fcco_lab.presentation.naming import contender, grouped
from fcco_lab.presentation.styles import Style, styles
from fcco_lab.runs import AXES, QUANTITIES, Record

__all__ = ["plot_axes", "plot_panels", "plot_profiles"]

By = Callable[[Record], str]


def plot_panels(
    panels: Mapping[str, Sequence[Record]],
    path: Path,
    *,
    by: By = contender,
    x: str,
    y: str = "objective",
    title: str,
    share_y: bool = False,
) -> None:
    """One panel per key, with one line per group of ``by``: mean and deviation over its seeds.

    Diverged runs are not drawn; the panel says how many. ``share_y``: all panels use one scale,
    for panels of the same data set.
    """
    if not panels:
        raise ValueError("panels must hold at least one panel, got none")
    drawn = [(name, records, x) for name, records in panels.items()]
    _plot(drawn, path, by=by, y=y, title=title, share_y=share_y)


def plot_axes(
    records: Sequence[Record],
    path: Path,
    *,
    by: By = contender,
    y: str = "objective",
    title: str,
) -> None:
    """The same runs, of one data set, against samples, oracle queries and CPU seconds."""
    _plot([("", records, x) for x in AXES], path, by=by, y=y, title=title, share_y=True)


def _plot(
    panels: Sequence[tuple[str, Sequence[Record], str]],
    path: Path,
    *,
    by: By,
    y: str,
    title: str,
    share_y: bool,
) -> None:
    """Panels of a name, its runs and a horizontal axis."""
    line_styles = styles(by(record) for _, records, _ in panels for record in records)
    xlabels = list(dict.fromkeys(AXES[x] for _, _, x in panels))
    ylabel = QUANTITIES.get(y, y)
    figure, axes = make_canvas(len(panels), xlabels=xlabels, ylabel=ylabel, share_y=share_y)
    bottoms = []
    for place, (name, records, x) in zip(axes, panels, strict=True):
        bottoms.append(_draw(place, records, by, x, y, line_styles))
        place.set_title(name, fontsize=10)
        _note_diverged(place, records, by, y)
    _scale(axes, [min(bottoms)] * len(axes) if share_y else bottoms, y)
    save(figure, axes, path, order=line_styles, title=title)


def plot_profiles(
    profiles: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    path: Path,
    *,
    cost: str = "queries",
    title: str,
) -> None:
    """Performance profiles: by contender, factors and the share of problems solved within each.

    ``profiles`` is what ``fcco_lab.presentation.profiles.profile`` returns.
    """
    line_styles = styles(profiles)
    xlabel = f"{AXES[cost]}: multiple of the best contender's"
    figure, axes = make_canvas(1, xlabels=[xlabel], ylabel="share of data sets solved")
    # Steps often coincide: wide lines are drawn first, so that their edges stay visible.
    widths = np.linspace(3.2, 1.4, len(line_styles))
    for (label, style), width in zip(line_styles.items(), widths, strict=True):
        line = style.line(len(profiles[label][0])) | {"lw": width, "label": label}
        axes[0].step(*profiles[label], where="post", **line)
    axes[0].set_xscale("log", base=2)
    axes[0].xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes[0].set_ylim(-0.03, 1.04)
    save(figure, axes, path, order=line_styles, title=title)


def _draw(
    place: Any, records: Sequence[Record], by: By, x: str, y: str, line_styles: Mapping[str, Style]
) -> float:
    """The lower end of the axis: below all lines, or below a metric after the start."""
    bottom = math.inf
    for label, runs in grouped(records, by).items():
        check_seeds(runs)
        grid, mean, sd = mean_curve(runs, x, y)
        if not len(grid):
            continue
        place.plot(grid, mean, lw=1.6, label=label, **line_styles[label].line(len(grid)))
        if sd.any():
            colour = line_styles[label].colour
            place.fill_between(grid, mean - sd, mean + sd, color=colour, alpha=0.15, lw=0)
        if y == "objective":
            bottom = min(bottom, float(np.min(mean[mean > 0], initial=math.inf)) / 1.4)
        else:
            bottom = min(bottom, float(np.quantile(mean, 0.15)))
    place.locator_params(axis="x", nbins=5)
    return bottom


def _scale(axes: Sequence[Any], bottoms: Sequence[float], y: str) -> None:
    """A band may reach below zero, which a log scale cannot show: the lines set the range."""
    for place, bottom in zip(axes, bottoms, strict=True):
        shared = place.get_shared_y_axes().get_siblings(place)
        top = max(sibling.dataLim.y1 for sibling in shared)
        if y == "objective" and bottom < math.inf:
            scale_as_log(place, bottom=bottom)
        elif y in QUANTITIES and bottom < top:
            place.set_ylim(bottom, top + 0.04 * (top - bottom))


def _note_diverged(place: Any, records: Sequence[Record], by: By, y: str) -> None:
    lost = []
    for label, runs in grouped(records, by).items():
        diverged = sum(run["status"] == "diverged" for run in runs)
        if diverged:
            lost.append(f"{label} {diverged} of {len(runs)}")
    if lost:
        # Objectives fall from the top left and metrics rise to the top right: a corner is free.
        height, end = (0.97, "top") if y == "objective" else (0.03, "bottom")
        text, frame = "\n".join(["diverged:", *lost]), place.transAxes
        place.text(0.97, height, text, transform=frame, ha="right", va=end, fontsize=8)
