"""Tables of runs: one row per contender, one column per data set, mean and deviation over seeds."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fcco_lab.presentation.curves import Final, at_equal, final
from fcco_lab.presentation.naming import contender, grouped, in_order, short
from fcco_lab.runs import Record

__all__ = ["Table", "cross_table", "markdown_table", "rich_rows"]

_UNITS = {"samples": " samples", "queries": " queries", "seconds": " s"}

_Columns = dict[str, Mapping[str, Final]]
"""Values by data set, then by contender."""


class Table(NamedTuple):
    """Headings, rows of cells, and the note of the dagger, which is empty if no run diverged."""

    headings: list[str]
    rows: list[list[str]]
    note: str


def markdown_table(
    records: Sequence[Record],
    key: str = "auc",
    *,
    rows: Sequence[str] | None = None,
    equal: str | None = None,
) -> str:
    """The table in Markdown, the best of a column in bold, with a note on runs that diverged.

    A cell with a diverged seed is never the best, because its mean lacks that seed.

    Args:
        records: the runs, with one setting per contender, data set and seed.
        key: "auc" or "ap" (higher is better), or "objective" (lower is better).
        rows: the contenders to show, in this order; by default all, in the usual order.
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
    return _markdown(_table(records, key, rows, equal, bold="**{}**"))


def _markdown(table: Table) -> str:
    lines = [["", *table.headings[1:]], *table.rows]
    text = ["|" + "|".join(f" {cell} " if cell else " " for cell in line) + "|" for line in lines]
    text.insert(1, "|" + "---|" * len(table.headings))
    return "\n".join([*text, "", table.note] if table.note else text)


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
    names = list(grouped(records, row))
    columns: _Columns = {
        name: {n: final(runs, key) for n, runs in grouped(mine, row).items()}
        for name, mine in grouped(records, column).items()
    }
    return _markdown(_assembled(names, columns, {}, key, bold="**{}**"))


def rich_rows(
    records: Sequence[Record],
    key: str = "auc",
    *,
    rows: Sequence[str] | None = None,
    equal: str | None = None,
) -> Table:
    """The same for ``rich.table.Table``, with its markup for bold; see :func:`markdown_table`."""
    return _table(records, key, rows, equal, bold="[bold]{}[/bold]")


def _table(
    records: Sequence[Record],
    key: str,
    rows: Sequence[str] | None,
    equal: str | None,
    *,
    bold: str,
) -> Table:
    shown = [r for r in records if rows is None or contender(r) in rows]
    names = list(rows) if rows is not None else in_order(map(contender, shown))
    headings, columns = {}, _Columns()
    if equal is None:
        for data, mine in grouped(shown, lambda record: str(record["config"]["data"])).items():
            columns[data] = {n: final(runs, key) for n, runs in grouped(mine, contender).items()}
    else:
        for data, found in at_equal(shown, equal, key).items():
            columns[data] = found.values
            headings[data] = f"{data}, at {short(found.reached)}{_UNITS[equal]}"
    return _assembled(names, columns, headings, key, bold=bold)


def _assembled(
    names: list[str], columns: _Columns, headings: Mapping[str, str], key: str, *, bold: str
) -> Table:
    cells = [
        _column([column.get(name) for name in names], key, bold) for column in columns.values()
    ]
    return Table(
        ["contender", *(headings.get(data, data) for data in columns)],
        [[name, *row] for name, *row in zip(names, *cells, strict=True)],
        _note(names, columns),
    )


def _note(names: Sequence[str], columns: _Columns) -> str:
    lost = [
        f"{name} on {data} {cell.diverged} of {cell.seeds + cell.diverged}"
        for name in names
        for data, column in columns.items()
        if (cell := column.get(name)) and cell.diverged
    ]
    return f"† diverged, and left out of the mean: {', '.join(lost)}." if lost else ""


def _column(cells: Sequence[Final | None], key: str, bold: str) -> list[str]:
    """Formatted cells; all cells whose formatted mean equals the best one are best."""
    able = [_mean(c.mean, key) if c and c.seeds and not c.diverged else "" for c in cells]
    best = (min if key == "objective" else max)(filter(None, able), key=float, default=None)
    texts = [_cell(cell, key) if cell else "" for cell in cells]
    return [
        bold.format(text) if mean == best else text for text, mean in zip(texts, able, strict=True)
    ]


def _cell(cell: Final, key: str) -> str:
    if not cell.seeds:
        return "diverged †" if cell.diverged else ""
    sd = f"{cell.sd:.1g}" if key == "objective" else _mean(cell.sd, key)
    spread = f" ± {sd}" if cell.seeds > 1 else ""
    return f"{_mean(cell.mean, key)}{spread}{' †' if cell.diverged else ''}"


def _mean(value: float, key: str) -> str:
    """Four decimals without the leading zero; three significant digits for an objective."""
    if key == "objective":
        return f"{value:#.3g}".rstrip(".")
    return f"{value:.4f}".removeprefix("0")
