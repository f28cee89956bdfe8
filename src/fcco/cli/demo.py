"""``fcco demo``: a progress bar while it runs, a table and a plot when it is done."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fcco.experiments.demo import CONTENDERS, WORK, Outcome
from fcco.experiments.demo import demo as run_demo
from fcco.experiments.plot import plot_curves

__all__ = ["demo", "show_demo"]


def show_demo(*, work: int, seed: int, output: Path) -> None:
    """Run the demo and show it; what was finished is written even if it is interrupted."""
    console = Console()
    outcomes: list[Outcome] = []
    total = len(CONTENDERS) + 1
    columns = (
        TextColumn("{task.description:<22}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%  objective {task.fields[objective]:.4f}"),
        TimeElapsedColumn(),
    )
    try:
        with Progress(*columns, console=console) as progress:
            whole = progress.add_task("digits, 10 AUC tasks", total=work * total, objective=0.0)

            def report(done: int, objective: float) -> None:
                at = len(outcomes)
                name = "cross-entropy adam" if at == 0 else CONTENDERS[at - 1].name
                progress.update(
                    whole,
                    completed=work * at + min(done, work),
                    objective=objective,
                    description=f"{at + 1}/{total} {name}",
                )

            for outcome in run_demo(work=work, seed=seed, report=report):
                outcomes += [outcome]
    except KeyboardInterrupt:
        console.print("interrupted; here is what was finished")
    if not outcomes:
        return
    console.print(_table(outcomes))
    console.print(
        "Queries are values + gradients of (task, sample) pairs, and work is values + 2 gradients. "
        "A snapshot of version 3 is counted per pair too, though one pass serves all tasks."
    )
    output.mkdir(parents=True, exist_ok=True)
    records = [outcome.as_record() for outcome in outcomes]
    (output / "demo.json").write_text(json.dumps(records, indent=1) + "\n")
    plot_curves(
        [outcome.trial for outcome in outcomes],
        output / "demo.png",
        title="digits as 10 one-vs-rest AUC tasks, 5 tasks a step",
    )
    console.print(f"plot: {output / 'demo.png'}   numbers: {output / 'demo.json'}")


def _table(outcomes: list[Outcome]) -> Table:
    table = Table(title="Equal oracle work; objective is exact, on the training set")
    table.add_column("method", no_wrap=True)
    for name in ("objective", "test AUC", "test AP", "queries", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    best = min(outcome.trial.curve[-1][1] for outcome in outcomes)
    for outcome in outcomes:
        trial, value = outcome.trial, outcome.trial.curve[-1][1]
        table.add_row(
            trial.name,
            f"[bold]{value:.5f}[/]" if value == best else f"{value:.5f}",
            f"{outcome.auc:.4f}",
            f"{outcome.ap:.4f}",
            f"{trial.queries.values / 1e3:.0f}k+{trial.queries.gradients / 1e3:.0f}k",
            f"{trial.seconds:.1f}",
        )
    return table


def demo(
    work: Annotated[
        int,
        typer.Option(
            min=10_000, help="Oracle work for each method: values + 2 x gradients of inner samples."
        ),
    ] = WORK,
    seed: Annotated[int, typer.Option(help="Of the data split, the network and the batches.")] = 0,
    output: Annotated[
        Path, typer.Option(help="Where the plot and the numbers are written.")
    ] = Path("runs/demo"),
) -> None:
    """Train a small network on digits as 10 one-vs-rest AUC tasks, with every method in turn.

    Each method gets the same amount of oracle work. Ends with a table, and a plot of the exact
    objective against work.
    """
    show_demo(work=work, seed=seed, output=output)
