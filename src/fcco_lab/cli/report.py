"""``fcco report``: one page from all the runs found under some paths."""

from pathlib import Path
from typing import Annotated

import typer

from fcco_lab.presentation.naming import contender, data_of, in_order
from fcco_lab.report import write_report
from fcco_lab.runs import read_runs

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
    page = output / "report.html" if output.is_dir() else output
    records = read_runs(paths)
    data = ", ".join(in_order(map(data_of, records)))
    write_report(records, page, title=title or f"Runs on {data}")
    contenders = {contender(record) for record in records}
    typer.echo(f"{len(records)} runs of {len(contenders)} contenders on {data} are in {page}")
