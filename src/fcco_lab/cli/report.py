"""``fcco report``: one page from all the runs found under some paths."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

__all__ = ["report"]


def report(
    paths: Annotated[
        list[Path], typer.Argument(help="Run directories, files of runs, or directories of either.")
    ],
    output: Annotated[
        Path, typer.Option(help="The page; in a directory it is called report.html.")
    ] = Path("report.html"),
    title: Annotated[
        str | None, typer.Option(help="Of the page.", show_default="the data sets")
    ] = None,
) -> None:
    """Write one HTML page with plots and tables of any set of runs; it opens offline.

    Example:

        fcco report runs/compare --output report.html
    """
    from fcco_lab.presentation.naming import contender, in_order
    from fcco_lab.report import write_report
    from fcco_lab.runs import read_runs

    page = output / "report.html" if output.is_dir() else output
    records = read_runs(paths)
    data = in_order(str(record["config"]["data"]) for record in records)
    write_report(records, page, title=title or f"Runs on {', '.join(data)}")
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
