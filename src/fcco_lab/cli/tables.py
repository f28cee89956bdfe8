"""Tables on the terminal."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from fcco_lab.presentation.tables import rich_rows
from fcco_lab.runs import QUANTITIES, Record

__all__ = ["print_records", "print_table"]


def print_table(
    console: Console, title: str, headings: Iterable[str], rows: Iterable[Iterable[str]]
) -> None:
    """The first column is text, the others are numbers."""
    table = Table(box=box.SIMPLE, title=title)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def print_records(console: Console, records: Sequence[Record], key: str) -> None:
    """Mean and standard deviation of a quantity over seeds, one row per contender."""
    found = rich_rows(records, key)
    title = f"{QUANTITIES[key]}, mean ± sd over seeds"
    print_table(console, title, found.headings, found.rows)
    if found.note:
        console.print(found.note)
