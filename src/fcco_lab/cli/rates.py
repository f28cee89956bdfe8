"""``fcco rates``: measure every theorem, resume where it stopped, and say which rates appear."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fcco_lab.choices import choose
from fcco_lab.cli.options import Workers
from fcco_lab.files import write

if TYPE_CHECKING:
    from fcco_lab.theory.questions import Cell
    from fcco_lab.theory.verdicts import Verdict

__all__ = ["cells", "rates"]


def cells(*, quick: bool, only: list[str]) -> list["Cell"]:
    """What is to be run, the longest first so that the cores stay busy to the end."""
    from fcco_lab.theory.questions import QUESTIONS, Cell

    for key in only:
        choose("question", key, QUESTIONS)
    runs = 16 if quick else 64
    sizes = {
        "T": [2**k for k in (range(7, 12) if quick else range(9, 15))],
        "m": [8, 16, 32] if quick else [8, 16, 32, 64],
        "stages": [6 if quick else 8],
        "accuracy": [2, 4, 6] if quick else [2, 4, 6, 8],
    }
    result = [
        Cell(key, x, runs)
        for key, question in QUESTIONS.items()
        if not only or key in only
        for x in sizes[question.size]
    ]
    return sorted(result, key=lambda cell: -cell.x)


def rates(
    quick: Annotated[
        bool, typer.Option(help="Shorter horizons and 16 seeds: about 2 minutes on 2 cores.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="A question by its key, such as norm-4; may be given several times."),
    ] = None,
    output: Annotated[
        Path, typer.Option(help="Where results and figures are written; the same place resumes.")
    ] = Path("runs/rates"),
    workers: Workers = None,
) -> None:
    """Measure the rate of every theorem on problems with known gradients, beside what it claims.

    Fits an exponent with an interval for each, shows which appear, and keeps every run: an
    interrupted measurement goes on with the same command.
    """
    from fcco_lab.cli.pool import run_jobs
    from fcco_lab.results import Results
    from fcco_lab.theory.questions import measure
    from fcco_lab.theory.verdicts import plot_verdict, verdicts

    console = Console()
    wanted = cells(quick=quick, only=only or [])
    results = Results(output / "cells.jsonl")
    missing = [cell for cell in wanted if cell.name not in results]
    run_jobs(missing, measure, results, console=console, workers=workers)
    names = {cell.name for cell in wanted}
    found = verdicts(record for name, record in results.records.items() if name in names)
    console.print(_table(found))
    for verdict in found:
        plot_verdict(verdict, output / f"{verdict.key}.png")
    records = [verdict.as_record() for verdict in found]
    write(output / "rates.json", json.dumps(records, indent=1) + "\n")
    console.print(f"figures, rates.json and the single runs are in {output}")


def _table(found: list["Verdict"]) -> Table:
    table = Table(box=box.SIMPLE, title="Exponents ± half a 95 % interval over resampled seeds")
    for name in ("thm", "quantity", "vs"):
        table.add_column(name, no_wrap=True)
    for name in ("claimed", "measured"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for v in found:
        table.add_row(
            v.theorem,
            v.quantity,
            v.axis,
            "" if v.claimed is None else f"{v.claimed:+.2f}",
            f"{v.measured.slope:+.2f} ± {(v.measured.high - v.measured.low) / 2:.2f}",
            v.word,
        )
    return table
