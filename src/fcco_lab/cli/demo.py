"""``fcco demo``: a progress bar while it runs, a table and a figure when it is done."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from fcco_lab.demo import Outcome

__all__ = ["demo"]

Found = dict[tuple[str, str], "Outcome"]


def demo(
    seed: Annotated[int, typer.Option(help="Of the networks and the batches.")] = 0,
    share: Annotated[
        float, typer.Option(min=0.001, max=1.0, help="Share of the full length of every run.")
    ] = 1.0,
    output: Annotated[
        Path, typer.Option(help="Where the figure and the numbers are written.")
    ] = Path("runs/demo"),
) -> None:
    """Cox regression with one patient per step, four samples per block, and the paper's methods.

    Takes about a minute, and ends with a table and a figure of what this run obtained. The data
    comes with scikit-learn and lifelines.
    """
    from fcco_lab.demo import PARTS, draw  # not at the top: help does without torch
    from fcco_lab.files import write

    console = Console()
    found: Found = {}
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
    console.print(_table(found))
    draw(PARTS, found, output / "demo.png")
    draw(PARTS, found, output / "demo-narrow.png", narrow=True)  # for phones
    records = [
        {"part": part, "contender": label, **outcome._asdict()}
        for (part, label), outcome in found.items()
    ]
    write(output / "demo.json", json.dumps(records) + "\n")
    console.print(f"figure: {output / 'demo.png'}   numbers: {output / 'demo.json'}")


def _table(found: Found) -> Table:
    from fcco_lab.demo import PARTS

    table = Table()
    for name in ("", "objective", "held-out metric"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for part in PARTS:
        table.add_row(f"[bold]{part.title}[/]", part.objective, part.metric, style="dim")
        for label in part.contenders:
            if outcome := found.get((part.title, label)):
                objective, metric = f"{outcome.objective[-1]:.2g}", f"{outcome.metric:.4f}"
                table.add_row(f"  {label}", objective, metric)
        table.add_section()
    return table
