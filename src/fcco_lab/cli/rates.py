"""``fcco rates``: measure every theorem, resume where it stopped, and say which rates appear."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fcco_lab.choices import choose
from fcco_lab.cli.options import Output, Workers
from fcco_lab.cli.tables import print_table
from fcco_lab.files import write
from fcco_lab.pool import run_jobs
from fcco_lab.theory.questions import QUESTIONS, Cell, measure
from fcco_lab.theory.verdicts import Verdict, plot_verdict, verdicts

__all__ = ["cells", "rates"]


def cells(*, quick: bool, only: list[str]) -> list[Cell]:
    """What is to be run, the longest first so that the cores stay busy to the end."""
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
    output: Output = Path("runs/rates"),
    workers: Workers = None,
) -> None:
    """Measure the rate of every theorem on problems with known gradients, beside what it claims.

    Fits an exponent with an interval for each, shows which appear, and keeps every run: an
    interrupted measurement goes on with the same command.
    """
    console = Console()
    wanted = {cell.name: cell for cell in cells(quick=quick, only=only or [])}
    file = output / "cells.jsonl"
    found = verdicts(run_jobs(wanted, measure, file, workers=workers, what="measuring"))
    print_table(
        console,
        "Exponents ± half a 95 % interval over resampled seeds",
        ("theorem, quantity and axis", "claimed", "measured", "verdict"),
        map(_row, found),
    )
    for verdict in found:
        plot_verdict(verdict, output / f"{verdict.key}.png")
    records = [verdict.as_record() for verdict in found]
    write(output / "rates.json", json.dumps(records, indent=1) + "\n")
    console.print(f"figures, rates.json and the single runs are in {output}")


def _row(verdict: Verdict) -> tuple[str, ...]:
    fit = verdict.measured
    return (
        f"{verdict.theorem} {verdict.quantity} vs {verdict.axis}",
        "" if verdict.claimed is None else f"{verdict.claimed:+.2f}",
        f"{fit.slope:+.2f} ± {(fit.high - fit.low) / 2:.2f}",
        verdict.word,
    )
