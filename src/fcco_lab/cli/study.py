"""``fcco study``: run a study's cases and sum them up."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fcco_lab.choices import choose
from fcco_lab.cli.options import DataDir, Workers

__all__ = ["study"]

NAMES = ("gamma", "stability", "network", "batches", "gain", "tracking", "rivals")

REAL_DATA = {
    "batches": ("surv_gbsg", "a9a", "lgb_lambdarank"),
    "gain": ("surv_gbsg", "a9a", "lgb_lambdarank"),
    "rivals": ("usps", "fashion_mnist", "a9a", "surv_gbsg", "lgb_lambdarank"),
}
"""The sets a study reads from the data directory."""


def study(
    name: Annotated[str, typer.Argument(help=f"{', '.join(NAMES)}.")],
    data_dir: DataDir = None,
    output: Annotated[
        Path, typer.Option(help="Where results are written; the same place resumes.")
    ] = Path("runs/studies"),
    workers: Workers = None,
) -> None:
    """Measure what the theorems leave open.

    gamma: the tracking error of each correction over step sizes, m/B1, alpha and beta.
    stability: where versions 2 and 3 hold on the synthetic family, bare and with ChangeBound.
    network: the same for a small network on digits. A star marks a run that did not get anywhere.
    batches: what the table is for: quality as the inner batch shrinks, with it and without it.
    gain: beta="auto" beside fixed gains, the mini-batch and the rules of others.
    tracking: the table's error with beta="auto" beside that of every fixed gain.
    rivals: each objective on real data, untuned, beside what one would pick instead.
    """
    from fcco_lab.cli.pool import run_jobs
    from fcco_lab.datasets import available
    from fcco_lab.results import Results
    from fcco_lab.studies.catalogue import STUDIES, run_case
    from fcco_lab.studies.summaries import plot_batches, summary

    choose("study", name, NAMES)
    if data_dir is not None:
        os.environ["FCCO_DATA"] = str(data_dir)  # the workers read it
    if name in REAL_DATA:
        there = {found.name for found in available(data_dir) if found.path is not None}
        missing = [wanted for wanted in REAL_DATA[name] if wanted not in there]
        if missing:
            raise ValueError(
                f"study {name} needs the data sets {', '.join(missing)}: name their "
                "directory with --data-dir or FCCO_DATA"
            )
    console = Console()
    results = Results(output / f"{name}.jsonl")
    cases = STUDIES[name]()
    todo = [case for case in cases if case.name not in results]
    run_jobs(todo, run_case, results, console=console, workers=workers)
    records = [results.records[case.name] for case in cases if case.name in results]
    if not records:
        return
    heading, *rows = summary(name, records)
    table = Table(*heading, box=box.SIMPLE)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if name == "batches":
        plot_batches(records, output / "batches")
    console.print(f"all cases are in {results.path}")
