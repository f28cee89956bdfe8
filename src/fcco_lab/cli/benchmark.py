"""``fcco benchmark``: run solvers on problems at equal work, and report who wins where."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fcco_lab.cli.options import DataDir

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
    output: Annotated[
        Path, typer.Option(help="Where records and the report are; the same place resumes.")
    ] = Path("runs/benchmark"),
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
    if action is Action.RUN:
        from fcco_lab.benchmark.experiment import Preparation, jobs_of, measure, prepare
        from fcco_lab.benchmark.problems import PROBLEMS
        from fcco_lab.benchmark.solvers import USUAL
        from fcco_lab.cli.pool import run_jobs
        from fcco_lab.results import Results

        words = problem or list(PROBLEMS)
        known = Results(output / "problems.jsonl")
        missing = [Preparation(word, data_dir) for word in words]
        missing = [job for job in missing if job.name not in known]
        run_jobs(missing, prepare, known, console=console, workers=jobs, what="optima")
        results = Results(output / "runs.jsonl")
        wanted = jobs_of(
            words,
            solver or USUAL,
            batch or [16, 64],
            tuned=tuned,
            seeds=seeds,
            passes=passes,
            seconds=seconds,
            data_dir=data_dir,
        )
        todo = []
        for job in wanted:
            if job.name not in results:
                found = known.records[f"problem {job.problem}"]
                numbers = (found["curvature"], found["first"], found["best"])
                todo.append(replace(job, known=numbers))
        run_jobs(todo, measure, results, console=console, workers=jobs, what="runs")
    from fcco_lab.benchmark.report import write_report

    write_report(output, output)
    console.print(f"report.md and its figures are in {output}")


def _list(console: Console) -> None:
    """Names and the first lines of what they are."""
    from fcco_lab.benchmark.problems import PROBLEMS
    from fcco_lab.benchmark.solvers import solvers

    console.print("problems:", *PROBLEMS, sep="\n  ")
    console.print("solvers:", *solvers(), sep="\n  ")
