"""``fcco report``: one page from all the runs found under some paths."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fcco_lab.presentation.naming import contender, in_order
from fcco_lab.report import write_report
from fcco_lab.runs import read_runs

__all__ = ["report", "show_report"]


def show_report(paths: list[Path], *, output: Path, title: str | None) -> None:
    """Write the page of the runs under ``paths`` to ``output``, and say what went in.

    Args:
        paths: what ``read_runs`` takes: files of records, run directories, directories of either.
        output: the page; in an existing directory it is called ``report.html``.
        title: of the page; if not given, it names the data sets.
    """
    page = output / "report.html" if output.is_dir() else output
    try:
        records = read_runs(paths)
        data = in_order(str(record["config"]["data"]) for record in records)
        write_report(records, page, title=title or f"Runs on {', '.join(data)}")
    except ValueError as error:
        sys.exit(f"fcco: {error}")
    contenders = {contender(record) for record in records}
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{_count(len(records), 'run')} of {_count(len(contenders), 'contender')} on "
        f"{', '.join(data)} went in",
        markup=False,
    )
    console.print(f"the page is {page}", markup=False)


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def report(
    paths: Annotated[
        list[Path], typer.Argument(help="Run directories, files of runs, or directories of either.")
    ],
    output: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Of the page.")] = None,
) -> None:
    """Write one HTML page with plots and tables of any set of runs; it opens offline.

    Example:

        fcco report runs/compare --output report.html
    """
    show_report(paths, output=output, title=title)
