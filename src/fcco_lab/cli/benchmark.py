"""``fcco benchmark``: run solvers on problems at equal work, and report who wins where."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fcco_lab.benchmark.experiment import (
    Budget,
    check_records,
    find_problem,
    find_solver,
    jobs_of,
    measure,
    prepare,
    sources_of,
)
from fcco_lab.benchmark.problems import PROBLEMS
from fcco_lab.benchmark.report import write_report
from fcco_lab.benchmark.solvers import USUAL, solvers
from fcco_lab.cli.options import DataDir, Output
from fcco_lab.pool import run_jobs
from fcco_lab.runs import Record

__all__ = ["benchmark"]


class Action(StrEnum):
    """What to do."""

    RUN = "run"
    REPORT = "report"
    LIST = "list"


def benchmark(
    action: Annotated[
        Action, typer.Argument(help="Run what is missing, draw the report, or list what there is.")
    ],
    problem: Annotated[
        list[str] | None,
        typer.Option(help="A name or module:name; may be repeated (default: all)."),
    ] = None,
    solver: Annotated[
        list[str] | None,
        typer.Option(help="A name or module:name; may be repeated (default: the usual ones)."),
    ] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(min=2, help="Inputs per step; may be repeated (default: 16 and 64)."),
    ] = None,
    data_dir: DataDir = None,
    output: Output = Path("runs/benchmark"),
    jobs: Annotated[int, typer.Option(min=1, help="Processes, one thread each.")] = 1,
    tuned: Annotated[int, typer.Option(min=0, help="Settings tried besides the default.")] = 8,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of every setting.")] = 1,
    passes: Annotated[
        float, typer.Option(min=0.1, max=100, help="Budget of a run in full gradients.")
    ] = 30.0,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Budget of a run in seconds of CPU time.")
    ] = 60.0,
) -> None:
    """Compare solvers at equal work on problems with a known optimum, and say who wins where.

    An interrupted run goes on with the same command: what is recorded is not run again.
    """
    console = Console()
    if action is Action.LIST:
        _list(console)
        return
    records: list[Record] = []
    if action is Action.RUN:
        words = {word: (word, data_dir) for word in problem or PROBLEMS}
        for word in words:  # say what is wrong before the optima are computed
            find_problem(word, data_dir)
        for word in solver or USUAL:
            find_solver(word)
        file = output / "problems.jsonl"
        check_records({word: sources_of(problem=word) for word in words}, file)
        known = run_jobs(words, prepare, file, workers=jobs, what="optima")
        budget = Budget(passes, seconds, tuned, seeds, data_dir)
        facts = dict(zip(words, known, strict=True))
        wanted = jobs_of(facts, solver or USUAL, batch or [16, 64], budget)
        runs = {job.name: job for job in wanted}
        file = output / "runs.jsonl"
        check_records({name: job.terms for name, job in runs.items()}, file)
        records = run_jobs(runs, measure, file, workers=jobs, what="runs")
    write_report(output)
    console.print(f"report.md and its figures are in {output}")
    if failed := [record for record in records if record.get("status") == "error"]:
        first = f"{failed[0]['name']} ended with {failed[0]['error']}"
        said = f"{len(failed)} of {len(records)} runs failed; {first}"
        if len(failed) == len(records):
            raise ValueError(said)
        typer.echo(said)


def _list(console: Console) -> None:
    """Print the names, and what each problem is."""
    console.print("Problems, in the order in which they are run:")
    for name, load in PROBLEMS.items():
        function = load.func if isinstance(load, partial) else load
        console.print(f"  {name:20} {(function.__doc__ or '').partition(chr(10))[0]}")
    console.print("Solvers; an asterisk marks those that are run unless others are named:")
    for name in solvers():
        console.print(f"  {name}{' *' if name in USUAL else ''}")
