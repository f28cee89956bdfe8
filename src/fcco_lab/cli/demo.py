"""``fcco demo``: a progress bar while it runs, a table and a figure when it is done."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fcco_lab.cli.tables import print_table
from fcco_lab.demo import PARTS, Outcome, draw
from fcco_lab.files import write

__all__ = ["demo"]


def demo(
    seed: Annotated[int, typer.Option(help="Of the networks and the batches.")] = 0,
    share: Annotated[
        float, typer.Option(min=0.001, max=1.0, help="Share of the full length of every run.")
    ] = 1.0,
    output: Annotated[
        Path, typer.Option(help="Where the figure and the numbers are written.")
    ] = Path("runs/demo"),
) -> None:
    """F1 and Cox at batch sizes from 64 to 1, and the paper's methods where accuracy is high.

    Takes less than a minute, and ends with a table and a figure of what this run obtained. The data
    comes with scikit-learn and lifelines.
    """
    console = Console()
    found: dict[tuple[str, str], Outcome] = {}
    total = sum(len(part.contenders) for part in PARTS)
    columns = (
        TextColumn("{task.description:<36}"),
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:>3.0f}%  objective {task.fields[objective]:<8.3g}"),
        TimeElapsedColumn(),
    )
    try:
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task("", total=total, objective=float("nan"))
            for part in PARTS:
                for label, run in part.contenders.items():

                    def show(done: float, objective: float) -> None:
                        progress.update(bar, completed=len(found) + done, objective=objective)

                    progress.update(bar, description=f"{len(found) + 1}/{total} {label}")
                    found[part.title, label] = run(seed, share, show)
    except KeyboardInterrupt:
        console.print("interrupted; here is what was finished")
    if not found:
        return
    for part in PARTS:
        rows = [
            [label, *(_objective_at(found[part.title, label], place) for place in part.shown)]
            for label in part.contenders
            if (part.title, label) in found
        ]
        places = [f"{place:g}" for place in part.shown]
        print_table(console, f"{part.title}, {part.cost}", ["", *places], rows)
    draw(PARTS, found, output / "demo.png")
    draw(PARTS, found, output / "demo-narrow.png", narrow=True)  # for phones
    records = [
        {"part": part, "contender": label, **outcome._asdict()}
        for (part, label), outcome in found.items()
    ]
    write(output / "demo.json", json.dumps(records) + "\n")
    console.print(f"figure: {output / 'demo.png'}   numbers: {output / 'demo.json'}")


def _objective_at(outcome: Outcome, place: float) -> str:
    """The objective at the measured cost that is nearest to a place on the horizontal axis."""
    pairs = zip(outcome.cost, outcome.objective, strict=True)
    return f"{min(pairs, key=lambda pair: abs(pair[0] - place))[1]:.2g}"
