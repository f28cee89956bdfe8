"""``fcco study``: run a study's cases and sum them up."""

import sys
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from fcco.cli.pool import run_jobs
from fcco.experiments.results import Results
from fcco.experiments.studies import STUDIES, run_case, summary

__all__ = ["show_study"]


def show_study(name: str, *, output: Path, workers: int | None) -> None:
    """Run what is missing of study ``name``, then its table."""
    if name not in STUDIES:
        sys.exit(f"fcco: there is no study {name!r}; there are: {', '.join(STUDIES)}")
    console = Console()
    results = Results(output / f"{name}.jsonl")
    cases = STUDIES[name]()
    missing = [case for case in cases if case.name not in results]
    run_jobs(missing, run_case, results, console=console, workers=workers)
    records = [results.records[case.name] for case in cases if case.name in results]
    if not records:
        return
    heading, *rows = summary(name, records)
    table = Table(*heading, box=box.SIMPLE)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print(f"all cases are in {results.path}")
