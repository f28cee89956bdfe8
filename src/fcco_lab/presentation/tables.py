"""Tables of runs: one row per contender, one column per data set, mean and deviation over seeds."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fcco_lab.presentation.curves import Final, final, shared_end
from fcco_lab.presentation.naming import contender, data_of, grouped, in_order, short
from fcco_lab.runs import METRICS, QUANTITIES, Record

__all__ = ["Table", "cross_table", "format_column", "markdown_table", "rich_rows"]

_UNITS = {"samples": " samples", "queries": " queries", "seconds": " s"}

_Columns = Mapping[str, Mapping[str, Final]]
"""Values by heading, then by row."""


class Table(NamedTuple):
    """Headings, rows of cells, and the note of the dagger, which is empty if no run diverged."""

    headings: list[str]
    rows: list[list[str]]
    note: str


def markdown_table(records: Sequence[Record], key: str = "auc", *, equal: str | None = None) -> str:
    """The table in Markdown, the best of a column in bold, with a note on runs that diverged.

    A cell with a diverged seed is never the best, because its mean lacks that seed.

    Args:
        records: the runs, with one setting per contender, data set and seed.
        key: "auc" or "ap" (higher is better), or "objective" (lower is better).
        equal: use values at the largest "samples", "queries" or "seconds" that all runs reached,
            instead of values at the end of each run.

    Examples:
        >>> config = {"method": "sox", "update": "plain", "data": "usps", "seed": 0}
        >>> run = {"name": "a", "config": config, "status": "finished", "auc": 0.9912}
        >>> print(markdown_table([run]))
        | | usps |
        |---|---|
        | SOX | **.9912** |
    """
    if equal is None:
        return cross_table(records, key, row=contender, column=data_of)
    columns = {}
    for data, mine in grouped(records, data_of).items():
        end = shared_end(mine, equal, key)
        heading = f"{data}, at {short(end)}{_UNITS[equal]}"
        by_name = grouped(mine, contender)
        columns[heading] = {n: final(runs, key, at=(equal, end)) for n, runs in by_name.items()}
    return _markdown(_assemble(columns, key, bold="**{}**"))


def cross_table(
    records: Sequence[Record],
    key: str,
    *,
    row: Callable[[Record], str],
    column: Callable[[Record], str],
) -> str:
    """The same in Markdown for any two properties of runs.

    Examples:
        >>> config = {"method": "sox", "update": "plain", "blocks_per_step": 5, "seed": 0}
        >>> run = {"name": "a", "config": config, "status": "finished", "auc": 0.9912}
        >>> print(cross_table([run], "auc", row=contender, column=lambda record: "B1 = 5"))
        | | B1 = 5 |
        |---|---|
        | SOX | **.9912** |
    """
    return _markdown(_assemble(_finals(records, key, row, column), key, bold="**{}**"))


def rich_rows(records: Sequence[Record], key: str = "auc") -> Table:
    """The same for ``rich.table.Table``, with its markup for bold; see :func:`markdown_table`."""
    return _assemble(_finals(records, key, contender, data_of), key, bold="[bold]{}[/bold]")


def _finals(
    records: Sequence[Record],
    key: str,
    row: Callable[[Record], str],
    column: Callable[[Record], str],
) -> _Columns:
    return {
        heading: {name: final(runs, key) for name, runs in grouped(mine, row).items()}
        for heading, mine in grouped(records, column).items()
    }


def _markdown(table: Table) -> str:
    lines = [["", *table.headings[1:]], *table.rows]
    text = ["|" + "|".join(f" {cell} " if cell else " " for cell in line) + "|" for line in lines]
    text.insert(1, "|" + "---|" * len(table.headings))
    return "\n".join([*text, "", table.note] if table.note else text)


def _assemble(columns: _Columns, key: str, *, bold: str) -> Table:
    names = in_order(name for column in columns.values() for name in column)
    cells = [
        format_column([column.get(name) for name in names], key, bold)
        for column in columns.values()
    ]
    lost = [
        f"{name} on {heading} {cell.diverged} of {cell.seeds + cell.diverged}"
        for name in names
        for heading, column in columns.items()
        if (cell := column.get(name)) and cell.diverged
    ]
    return Table(
        ["contender", *columns],
        [[name, *row] for name, *row in zip(names, *cells, strict=True)],
        f"† diverged, and left out of the mean: {', '.join(lost)}." if lost else "",
    )


def format_column(cells: Sequence[Final | None], key: str, bold: str) -> list[str]:
    """Formatted cells; all cells whose formatted mean equals the best one are best.

    What is no quantity of ``QUANTITIES`` is a cost, which is neither judged nor has a deviation.
    """
    able = [_mean(c.mean, key) if c and c.seeds and not c.diverged else "" for c in cells]
    judged = [mean for mean in able if mean and key in QUANTITIES]
    best = (min if key == "objective" else max)(judged, key=float, default=None)
    texts = [_cell(cell, key) if cell else "" for cell in cells]
    return [
        bold.format(text) if mean == best else text for text, mean in zip(texts, able, strict=True)
    ]


def _cell(cell: Final, key: str) -> str:
    if not cell.seeds:
        return "diverged †" if cell.diverged else ""
    sd = f"{cell.sd:.1g}" if key == "objective" else _mean(cell.sd, key)
    deviation = f" ± {sd}" if cell.seeds > 1 and key in QUANTITIES else ""
    return f"{_mean(cell.mean, key)}{deviation}{' †' if cell.diverged else ''}"


def _mean(value: float, key: str) -> str:
    """Four decimals without the leading zero; three significant digits of anything else."""
    if key in METRICS:
        return f"{value:.4f}".removeprefix("0")
    return f"{value:#.3g}".rstrip(".") if key == "objective" else short(value)
