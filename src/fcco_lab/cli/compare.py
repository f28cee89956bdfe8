"""``fcco compare``: several methods and seeds, with the same work for each."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fcco_lab.choices import choose
from fcco_lab.cli.options import DataDir, Workers, takes_settings
from fcco_lab.cli.pool import run_jobs
from fcco_lab.jobs import RunJob, run_job
from fcco_lab.presentation.figures import plot_axes
from fcco_lab.presentation.tables import rich_rows
from fcco_lab.report import write_report
from fcco_lab.results import Results
from fcco_lab.runs import Record
from fcco_lab.training import Config
from fcco_lab.training.config import CHOICES

__all__ = ["compare", "contenders", "print_table", "run_configs"]


def contenders(words: Iterable[str], update: str) -> list[tuple[str, str]]:
    """Methods with their step rules, from "sox" or "msvrm-v2:normalized".

    Examples:
        >>> contenders(["sox", "msvrm-v2:plain"], "adam")
        [('sox', 'adam'), ('msvrm-v2', 'plain')]
    """
    pairs = []
    for word in words:
        method, _, rule = word.partition(":")
        choose("method", method, CHOICES["method"])
        rule = rule or ("plain" if method == "min-max" else update)
        choose("update", rule, CHOICES["update"])
        pairs.append((method, rule))
    return pairs


def run_configs(
    configs: Iterable[Config],
    results: Results,
    *,
    data_dir: Path | None,
    console: Console,
    workers: int | None,
    what: str,
) -> list[Record]:
    """Run those that have no record yet; the records of all."""
    wanted = {config.name: config for config in configs}
    scratch = results.path.parent / "scratch"
    missing = [RunJob(c, data_dir, scratch) for name, c in wanted.items() if name not in results]
    if missing:
        run_jobs(missing, run_job, results, console=console, workers=workers, what=what)
    return [results.records[name] for name in wanted]


@takes_settings(but=["method"])
def compare(
    config: Config,
    methods: Annotated[
        str,
        typer.Option(
            help="Methods with commas between; msvrm-v2:normalized names a step rule of its own."
        ),
    ] = "sox,msvrm-v1,msvrm-v2,msvrm-v3,cross-entropy,min-max",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each.")] = 3,
    data_dir: DataDir = None,
    output: Annotated[
        Path, typer.Option(help="Where results are kept; the same place resumes.")
    ] = Path("runs/compare"),
    workers: Workers = None,
) -> None:
    """Train with several methods and seeds under equal work, and compare.

    Work is inputs passed forward + 2 x inputs passed backward: every method gets the work of
    --steps steps of SOX, or --work. Ends with tables of the training objective, test AUC and AP, a
    figure on three axes and an HTML page.

    Example:

        fcco compare --data usps --data-dir ~/data --methods sox,msvrm-v2,cross-entropy --steps 500
    """
    console = Console()
    if not config.work:
        # As much as the steps of SOX cost, for everyone.
        drawn = config.blocks_per_step * config.samples_per_block
        config = replace(config, work=config.steps * 3 * drawn)
    config = replace(config, steps=0)
    configs = [
        replace(config, method=method, update=rule, seed=config.seed + seed)
        for method, rule in contenders(methods.split(","), config.update)
        for seed in range(seeds)
    ]
    results = Results(output / "runs.jsonl")
    records = run_configs(
        configs, results, data_dir=data_dir, console=console, workers=workers, what="comparing"
    )
    for key in ("objective", "auc", "ap"):
        print_table(console, records, key)
    plot_axes(records, output / "curves.png", title=f"{config.data}, equal work")
    write_report(records, output / "report.html", title=f"{config.data}: equal work for each")
    console.print(f"{output / 'curves.png'}, {output / 'report.html'}, {results.path}")


_NAMES = {"objective": "training objective", "auc": "test AUC", "ap": "test AP"}


def print_table(console: Console, records: Sequence[Record], key: str) -> None:
    """Mean and standard deviation over seeds, one row per contender."""
    found = rich_rows(records, key)
    table = Table(box=box.SIMPLE, title=f"{_NAMES[key]}, mean ± sd over seeds")
    for place, heading in enumerate(found.headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=True)
    for row in found.rows:
        table.add_row(*row)
    console.print(table)
    if found.note:
        console.print(found.note)
