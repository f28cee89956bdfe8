"""``fcco reproduce``: tune, run and draw one of the paper's figures or tables."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fcco_lab.choices import choose
from fcco_lab.cli.options import DataDir, Output, Workers
from fcco_lab.cli.tables import print_records
from fcco_lab.comparison import run_configs
from fcco_lab.datasets import available
from fcco_lab.reproduction.artefacts import draw
from fcco_lab.reproduction.plan import ARTEFACTS, Item
from fcco_lab.reproduction.scales import SCALES
from fcco_lab.reproduction.tuning import final_runs, tuning_runs

__all__ = ["reproduce"]


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help=f"{', '.join(ARTEFACTS)}; the first six are the paper's.", metavar="NAME"
        ),
    ],
    scale: Annotated[
        str, typer.Option(help="laptop (a compact network, minutes) or paper (for a GPU).")
    ] = "laptop",
    quick: Annotated[
        bool, typer.Option("--quick", help="On digits, in a minute, just to see it work.")
    ] = False,
    data_dir: DataDir = None,
    output: Output = Path("runs/reproduce"),
    workers: Workers = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be run.")] = False,
) -> None:
    """Tune, run and draw one of the paper's figures or tables, or what the paper never shows.

    many-tasks: 100 tasks with 2, 5, 10 or 50 of them a step. gammas: the corrections of u.
    defaults: without tuning. Data sets that are not there are left out, with a message.
    """
    choose("figure or table", name, ARTEFACTS)
    choose("scale", scale, ("laptop", "paper"))
    console = Console()
    size = SCALES["quick" if quick else scale]
    items = _keep_available(list(ARTEFACTS[name](size)), data_dir, console)
    tuning = tuning_runs(size, items)
    if dry_run:
        count = len(items) * size.seeds
        console.print(f"{len(tuning)} runs to tune, {count} runs with the chosen settings:")
        for run in tuning:
            console.print(f"  {run}", highlight=False)
        return
    place = output / size.name
    runs = partial(run_configs, data_dir=data_dir, workers=workers)
    tuned = runs(tuning.values(), place / "tuning.jsonl", what="tuning")
    finals = final_runs(size, items, tuned)
    records = runs(finals.values(), place / "runs.jsonl", what=name)
    if name.startswith("table"):
        print_records(console, records, name.removeprefix("table-"))
    for path in draw(name, records, place):
        console.print(f"written: {path}")


def _keep_available(items: list[Item], data_dir: Path | None, console: Console) -> list[Item]:
    """Those whose data is there, and a message about the others."""
    there = available(data_dir)
    missing = dict.fromkeys(item.data for item in items if item.data not in there)
    if missing:
        console.print(f"left out, for want of data: {', '.join(missing)}")
    kept = [item for item in items if item.data in there]
    if not kept:
        raise ValueError(
            "none of the data sets is there: name their directory with --data-dir or FCCO_DATA "
            "(or try --quick, which needs none)"
        )
    return kept
