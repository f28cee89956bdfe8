"""``fcco demo``: a progress bar while it runs, a table and a plot when it is done."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fcco_lab.demo import CONTENDERS, WORK
from fcco_lab.demo import demo as run_demo
from fcco_lab.presentation.figures import plot_axes
from fcco_lab.results import Results
from fcco_lab.runs import Record, contender_name
from fcco_lab.training import Progress as Standing

__all__ = ["demo"]


def demo(
    work: Annotated[
        int,
        typer.Option(
            min=10_000, help="For each method: inputs passed forward + 2 x inputs passed backward."
        ),
    ] = WORK,
    seed: Annotated[int, typer.Option(help="Of the network and the batches.")] = 0,
    output: Annotated[
        Path, typer.Option(help="Where the plot and the numbers are written.")
    ] = Path("runs/demo"),
) -> None:
    """Train a small network on digits as 10 one-vs-rest AUC tasks, with every method in turn.

    Each method gets the same amount of work. Ends with a table, and a plot of the exact objective
    against samples, oracle queries and seconds.
    """
    console = Console()
    records: list[Record] = []
    total = len(CONTENDERS)
    columns = (
        TextColumn("{task.description:<22}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%  objective {task.fields[objective]:.4f}"),
        TimeElapsedColumn(),
    )
    try:
        with Progress(*columns, console=console) as progress:
            whole = progress.add_task("digits, 10 AUC tasks", total=total, objective=0.0)

            def report(standing: Standing) -> None:
                at = len(records)
                progress.update(
                    whole,
                    completed=at + standing.fraction,
                    objective=standing.look["objective"],
                    description=f"{at + 1}/{total} {contender_name(CONTENDERS[at].as_record())}",
                )

            for record in run_demo(work=work, seed=seed, report=report):
                records += [record]
    except KeyboardInterrupt:
        console.print("interrupted; here is what was finished")
    if not records:
        return
    console.print(_table(records))
    console.print(
        "Queries are values + gradients of (task, sample) pairs. Work is inputs forward + 2 x "
        "inputs backward: an input of version 3's exact passes serves all tasks at once."
    )
    path = output / "runs.jsonl"
    results = Results(path)
    for record in records:
        results.add(record)
    plot_axes(records, output / "demo.png", title="digits as 10 AUC tasks, 5 tasks a step")
    console.print(f"plot: {output / 'demo.png'}   numbers: {path}")


def _table(records: list[Record]) -> Table:
    table = Table(title="Equal work; objective is exact, on the training set")
    table.add_column("method", no_wrap=True)
    for name in ("objective", "test AUC", "test AP", "steps", "queries", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    best = min(record["objective"] for record in records)
    for record in records:
        value, look = record["objective"], record["curve"][-1]
        written = f"{max(value, 0.0):.5f}"  # rounding may leave a variance below zero
        table.add_row(
            contender_name(record["config"]),
            f"[bold]{written}[/]" if value == best else written,
            f"{record['auc']:.4f}",
            f"{record['ap']:.4f}",
            str(look["step"]),
            f"{look['values'] / 1e3:.0f}k+{look['gradients'] / 1e3:.0f}k",
            f"{look['seconds']:.1f}",
        )
    return table
