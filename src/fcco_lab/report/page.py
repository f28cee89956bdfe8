"""One self-contained page from the records of runs; it opens offline."""

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from fcco_lab.files import write
from fcco_lab.presentation.naming import data_of, grouped, in_order
from fcco_lab.report.groups import groups
from fcco_lab.report.parts import facts, figure, listing, statuses
from fcco_lab.report.plots import Groups, curves_figure, profiles_figure
from fcco_lab.report.tables import table
from fcco_lab.runs import Record, flaw_of

__all__ = ["write_report"]

_SCRIPTS = ("drawing.js", "sorting.js", "plotting.js")
_PROFILES = (
    "The target on a data set is the best value of the mean curve of the median contender. The "
    "cost of a contender is counted until it first reached the target. A line is the fraction of "
    "the {} data sets on which its contender reached the target within that multiple of the "
    "lowest cost: higher and further left is better. A line that ends below 100 % missed a target, "
    "or needed more than 10 times the lowest cost."
)


def write_report(records: Sequence[Record], path: Path | str, *, title: str) -> None:
    """Write the page to ``path`` atomically.

    Args:
        records: runs as ``fcco_lab.compare`` returns them, at least one; a record that lacks
            something is a ``ValueError`` that names it.
        path: the path of the page; its directory is created if it is missing.
        title: the title of the page, as plain text.
    """
    if not records:
        raise ValueError("there are no runs to report on")
    for record in records:
        if flaw := flaw_of(record):
            raise ValueError(f"a record cannot be shown: {flaw}")
    write(Path(path), _page(records, title))


def _page(records: Sequence[Record], title: str) -> str:
    by_data: Groups = {data: groups(mine) for data, mine in grouped(records, data_of).items()}
    labels = dict.fromkeys(group.label for found in by_data.values() for group in found)
    numbers = {label: number for number, label in enumerate(labels)}
    figures: list[dict[str, Any]] = []
    sections = []
    for data, found in by_data.items():
        figures.append(curves_figure(data, found, numbers))
        plot = figure(
            len(figures) - 1,
            figures[-1],
            label=f"Curves of {data}",
            caption="Means over seeds with a band of one standard deviation either side. Drag to "
            "zoom, double-click to go back; a name below the plot hides its curve.",
        )
        heading = f"<h2>{escape(data)}</h2>"
        sections.append(f"<section>{heading}{table(data, found)}{plot}</section>")
    profiles = profiles_figure(by_data, numbers)
    if profiles:
        figures.append(profiles)
        caption = _PROFILES.format(len(by_data)) + _left_out(by_data, profiles)
        plot = figure(len(figures) - 1, profiles, label="Performance profiles", caption=caption)
        sections.append(f"<section><h2>Performance profiles</h2>{plot}</section>")
    here = files(__package__)
    template = Template(here.joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(title),
        style=here.joinpath("page.css").read_text(encoding="utf-8"),
        facts=facts(records),
        statuses=statuses(records),
        sections="\n".join(sections),
        count=f"{len(records):,}",
        listing=listing(records),
        # A "<" could end the script element.
        figures=json.dumps(figures, allow_nan=False).replace("<", "\\u003c"),
        script="".join(here.joinpath(name).read_text(encoding="utf-8") for name in _SCRIPTS),
    )


def _left_out(by_data: Groups, profiles: dict[str, Any]) -> str:
    shown = {series["name"] for series in profiles["series"]}
    labels = {group.label for found in by_data.values() for group in found}
    missing = in_order(labels - shown)
    return f" Left out (not on every data set): {'; '.join(missing)}." if missing else ""
