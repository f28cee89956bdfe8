"""The frame of every figure: its size, its axes, one legend under them, and the file."""

import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fcco_lab.files import write
from fcco_lab.presentation.naming import short

__all__ = ["make_canvas", "save", "scale_as_log"]

_WIDTH = 8.2  # inches, at _DPI 900 pixels: a page's width on the web
_DPI = 110
_PANEL_COLUMNS = {1: 1, 2: 2, 4: 2}
_LEGEND_COLUMNS = {1: 1, 2: 2, 3: 3, 5: 3, 6: 3}


def make_canvas(
    count: int,
    *,
    xlabels: Sequence[str],
    ylabel: str,
    share_y: bool = False,
    narrow: bool = False,
) -> tuple[Any, list[Any]]:
    """A figure and its panels; ``xlabels`` holds one label for all panels, or one per panel.

    ``narrow`` is for phones: half as wide, with the panels below one another.

    The figure is not registered with pyplot, and Agg draws it on any machine.
    """
    from matplotlib.figure import Figure

    columns = 1 if narrow else _PANEL_COLUMNS.get(count, 3)
    rows = math.ceil(count / columns)
    height = {1: 3.8, 2: 2.9, 3: 2.5}[columns] * rows + 0.9 * (not narrow)
    width = _WIDTH / 2 if narrow else _WIDTH
    figure = Figure(figsize=(width, height), dpi=_DPI, layout="constrained")
    axes = list(figure.subplots(rows, columns, sharey=share_y, squeeze=False).ravel())
    for spare in axes[count:]:
        spare.remove()
    for index, place in enumerate(axes[:count]):
        # Panels that share their labels show them only at the edges.
        if len(xlabels) > 1 or index + columns >= count:
            place.set_xlabel(xlabels[index % len(xlabels)], fontsize=9)
        if index % columns == 0:
            place.set_ylabel(ylabel, fontsize=9)
        place.grid(alpha=0.25, which="major", lw=0.6)
        place.spines[["top", "right"]].set_visible(False)
        place.tick_params(labelsize=8.5)
        place.xaxis.set_major_formatter(lambda value, _: short(value))
    return figure, axes[:count]


def scale_as_log(place: Any, *, bottom: float) -> None:
    """A log scale from ``bottom`` with plain numbers, also between the powers of ten if few."""
    from matplotlib.ticker import LogLocator, NullFormatter

    place.set_yscale("log")
    place.set_ylim(bottom=bottom)
    few = place.get_ylim()[1] / bottom < 300
    place.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    place.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    place.yaxis.set_minor_formatter(NullFormatter())


def save(
    figure: Any, axes: Iterable[Any], path: Path | io.BytesIO, *, order: Iterable[str], title: str
) -> None:
    """Put the title above all panels and the legend below them, and write the PNG."""
    from PIL import Image

    handles: dict[str, Any] = {}
    for place in axes:
        for handle, label in zip(*place.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    shown = [label for label in order if label in handles]
    if shown:
        columns = _LEGEND_COLUMNS.get(len(shown), 3 if max(map(len, shown)) > 15 else 4)
        more_rows = max(0, math.ceil(len(shown) / columns) - 4)
        figure.set_figheight(figure.get_figheight() + 0.21 * more_rows)
        # Matplotlib fills columns; read along the rows, the labels are in order.
        shown = [label for start in range(columns) for label in shown[start::columns]]
        frame: dict[str, Any] = {"loc": "outside lower center", "frameon": False}
        lines = [handles[label] for label in shown]
        figure.legend(lines, shown, ncols=columns, fontsize=9, handlelength=2.8, **frame)
    figure.suptitle(title, fontsize=11.5)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=_DPI)
    # A palette of 256 colours halves the file, and the eye sees no difference.
    image = Image.open(drawn).convert("RGB").quantize(256)
    if isinstance(path, io.BytesIO):
        image.save(path, format="png", optimize=True)
    else:
        write(path, lambda file: image.save(file, format="png", optimize=True))
