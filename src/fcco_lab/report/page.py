"""One self-contained page from the records of runs; it opens offline."""

import base64
import io
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from fcco_lab.files import write
from fcco_lab.presentation.curves import final
from fcco_lab.presentation.figures import plot_axes, plot_profiles
from fcco_lab.presentation.naming import contender, data_of, grouped
from fcco_lab.presentation.profiles import profiles_of
from fcco_lab.presentation.tables import format_column
from fcco_lab.runs import QUANTITIES, Record, flaw_of
from fcco_lab.training import Config

__all__ = ["label_runs", "write_report"]

_COLUMNS = {**QUANTITIES, "step": "steps", "queries": "queries", "seconds": "CPU seconds"}
_SHORT = {"blocks_per_step": "B1", "samples_per_block": "B2"}
_NOT_SETTINGS = {"seed", "evaluations", "diagnostics", "threads", "device"}


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
    groups = {data: label_runs(mine) for data, mine in grouped(records, data_of).items()}
    pictures = {}
    for cost in ("queries", "seconds"):
        if found := profiles_of(groups, cost):
            title_of = f"Data sets solved within a multiple of the fewest {cost}"
            pictures[title_of] = partial(plot_profiles, found, cost=cost)
    counts = Counter(record["status"] for record in records)
    listing = [
        [*(escape(str(record.get(key) or "")) for key in ("name", "status", "reason")), settings]
        for record in records
        for settings in [escape(", ".join(_setting(record, key) for key in record["config"]))]
    ]
    template = Template(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    page = template.substitute(
        title=escape(title),
        facts=", ".join(f"{count:,} {status}" for status, count in counts.items()),
        sections="\n".join(_section(data, found) for data, found in groups.items()),
        profiles=_draw(pictures),
        listing=_table(["run", "status", "reason", "settings"], listing),
    )
    write(Path(path), page)


def label_runs(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The runs of one data set that differ only in the seed; labels contain only the differences.

    Two runs that do not even differ in the seed are never averaged: the second shows its name.

    Examples:
        >>> def run(**config):
        ...     config = {"method": "sox", "update": "adam", **config}
        ...     return {"name": f"run {config['seed']}", "config": config}
        >>> runs = [run(seed=0, blocks_per_step=2), run(seed=1, blocks_per_step=2)]
        >>> list(label_runs(runs))
        ['SOX Adam']
        >>> list(label_runs([*runs, run(seed=0, blocks_per_step=5)]))
        ['SOX Adam, B1=2', 'SOX Adam, B1=5']
        >>> list(label_runs([*runs, run(seed=2, blocks_per_step=2, updated_slopes=False)]))
        ['SOX Adam']
        >>> list(label_runs([*runs, run(seed=1, blocks_per_step=2)]))
        ['SOX Adam', 'SOX Adam, run 1']
    """
    labels: dict[int, str] = {}
    for name, mine in grouped(records, contender).items():
        options = dict.fromkeys(option for record in mine for option in record["config"])
        differing = [
            option
            for option in options
            if option not in _NOT_SETTINGS and len({_setting(run, option) for run in mine}) > 1
        ]
        seen = set()
        for record in mine:
            label = ", ".join([name, *(_setting(record, option) for option in differing)])
            while (label, _setting(record, "seed")) in seen:
                label += f", {record['name']}"
            seen.add((label, _setting(record, "seed")))
            labels[id(record)] = label
    return grouped(records, lambda record: labels[id(record)])


def _setting(record: Record, option: str) -> str:
    """For a setting that an earlier version did not have, its runs have the default."""
    value = record["config"].get(option, getattr(Config, option, None))
    if option in ("network", "objective") and value is not None:
        return str(value)  # which needs no name before it
    return f"{_SHORT.get(option, option)}={'none' if value is None else value}"


def _section(data: str, groups: Mapping[str, Sequence[Record]]) -> str:
    """The table of one data set, then a figure of everything that was measured."""
    names = {}
    for row, (label, runs) in enumerate(groups.items(), 1):
        name = label if len(label) < 30 else f"{label.partition(',')[0]}, row {row}"
        names.update({id(run): name for run in runs})
    records = [record for runs in groups.values() for record in runs]
    finals = {key: [final(runs, key) for runs in groups.values()] for key in _COLUMNS}
    shown = [key for key in finals if any(cell.seeds for cell in finals[key])]
    statuses = {
        status: [sum(run["status"] == status for run in runs) or "" for runs in groups.values()]
        for status in dict.fromkeys(record["status"] for record in records)
    }
    columns = [
        list(range(1, len(groups) + 1)),
        [escape(label) for label in groups],
        *(format_column(finals[key], key, "<b>{}</b>") for key in shown),
        *statuses.values(),
    ]
    heads = ["row", "contender", *(_COLUMNS[key] for key in shown), *statuses]
    pictures = {
        QUANTITIES[key]: partial(plot_axes, records, by=lambda run: names[id(run)], y=key)
        for key in shown
        if key in QUANTITIES
    }
    table = _table(heads, zip(*columns, strict=True))
    return f"<section><h2>{escape(data)}</h2>{table}{_draw(pictures)}</section>"


def _table(heads: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """An HTML table of cells that are escaped already."""
    lines = "\n".join(
        "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows
    )
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = f"<thead><tr>{head}</tr></thead><tbody>\n{lines}\n</tbody>"
    return f'<div class="box"><table>{body}</table></div>'


def _draw(pictures: Mapping[str, Callable[..., None]]) -> str:
    """The PNGs of functions that take a file and a title."""
    from matplotlib import rc_context

    found = ""
    for title, plot in pictures.items():
        file = io.BytesIO()
        # A "$" in a name is no mathematics, and a character may be missing in the font.
        with rc_context({"text.parse_math": False}), warnings.catch_warnings(action="ignore"):
            plot(file, title=title)
        content = base64.b64encode(file.getvalue()).decode()
        found += f'<img alt="{escape(title)}" src="data:image/png;base64,{content}">\n'
    return found
