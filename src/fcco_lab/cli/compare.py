"""``fcco compare``: several methods and seeds, with the same work for each."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fcco_lab.cli.options import DataDir, Workers, takes_settings
from fcco_lab.cli.pool import run_jobs
from fcco_lab.comparison import make_configs, parse_contenders
from fcco_lab.files import remove
from fcco_lab.jobs import RunJob, run_job
from fcco_lab.presentation.figures import plot_axes
from fcco_lab.presentation.tables import rich_rows
from fcco_lab.report import write_report
from fcco_lab.results import Results
from fcco_lab.runs import QUANTITIES, Record
from fcco_lab.training import Config
from fcco_lab.training.objectives import kind_of
from fcco_lab.training.problem import load_problem

__all__ = ["compare", "print_table", "run_configs"]

METHODS = "sox,msvrm-v1,msvrm-v2,msvrm-v3"
BASELINES = "cross-entropy,min-max"


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
    scratch = results.path.parent / "unfinished-runs"
    missing = [RunJob(c, data_dir, scratch) for name, c in wanted.items() if name not in results]
    if missing:
        run_jobs(missing, run_job, results, console=console, workers=workers, what=what)
        remove(scratch)
    return [results.records[name] for name in wanted]


@takes_settings(but=["method"])
def compare(
    config: Config,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods with commas between; msvrm-v2:normalized names a step rule of its own, "
            "module:name a method of your own.",
            show_default=f"{METHODS}, and {BASELINES} for classes",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each.")] = 3,
    data_dir: DataDir = None,
    output: Annotated[
        Path, typer.Option(help="Where results are kept; the same place resumes.")
    ] = Path("runs/compare"),
    workers: Workers = None,
) -> None:
    """Train with several methods and seeds under equal work, and compare.

    Work is inputs passed forward + 2 x inputs passed backward: every method gets the work of
    --steps steps of SOX, or --work. Ends with tables of the training objective and the test
    metrics, a figure on three axes and an HTML page.

    Examples:

        fcco compare --data usps --data-dir ~/data --methods sox,msvrm-v2,cross-entropy --steps 500

        fcco compare --data patients.csv --objective cox --methods sox,mine:METHOD
    """
    console = Console()
    if methods is None:
        methods = f"{METHODS},{BASELINES}" if kind_of(config.objective) == "classes" else METHODS
    contenders = parse_contenders(methods.split(","), config.update)
    problem = load_problem(config, data_dir)
    results = Results(output / "runs.jsonl")
    _check_data(config, results, problem.content)
    records = run_configs(
        make_configs(config, contenders, seeds, problem),
        results,
        data_dir=data_dir,
        console=console,
        workers=workers,
        what="comparing",
    )
    for key in QUANTITIES:
        if any(record.get(key) is not None for record in records):
            print_table(console, records, key)
    data = Path(config.data).name
    plot_axes(records, output / "curves.png", title=f"{data}, equal work")
    write_report(records, output / "report.html", title=f"{data}: equal work for each")
    typer.echo(f"{output / 'curves.png'}, {output / 'report.html'}, {results.path}")


def _check_data(config: Config, results: Results, here: dict[str, str]) -> None:
    """Records must be of the present content of the data: its name says little."""
    settings = ("data", "target", "drop", "holdout", "train_size", "objective")
    for record in results.records.values():
        if any(record["config"].get(key) != getattr(config, key) for key in settings):
            continue
        there = here | record.get("content", {})
        if any(there[key] != here[key] for key in ("training_data", "test_data")):
            raise ValueError(
                f"{config.data} has changed since {results.path} was written "
                f"({there['training_data']} there, {here['training_data']} here): name another "
                "output"
            )


def print_table(console: Console, records: Sequence[Record], key: str) -> None:
    """Mean and standard deviation over seeds, one row per contender."""
    found = rich_rows(records, key)
    table = Table(box=box.SIMPLE, title=f"{QUANTITIES[key]}, mean ± sd over seeds")
    for place, heading in enumerate(found.headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=True)
    for row in found.rows:
        table.add_row(*row)
    console.print(table)
    if found.note:
        console.print(found.note)
