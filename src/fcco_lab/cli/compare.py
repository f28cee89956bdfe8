"""``fcco compare``: several methods and seeds, with the same work for each."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fcco_lab.cli.options import DataDir, Output, Workers, takes_settings
from fcco_lab.cli.tables import print_records
from fcco_lab.comparison import make_configs, parse_contenders, run_configs
from fcco_lab.presentation.figures import plot_axes
from fcco_lab.report import write_report
from fcco_lab.runs import QUANTITIES
from fcco_lab.training import Config
from fcco_lab.training.problem import kind_of, load_problem

__all__ = ["compare"]

METHODS = "sox,msvrm-v1,msvrm-v2,msvrm-v3"
BASELINES = "cross-entropy,min-max"


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
    output: Output = Path("runs/compare"),
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
    file = output / "runs.jsonl"
    records = run_configs(
        make_configs(config, contenders, seeds, problem),
        file,
        data_dir=data_dir,
        workers=workers,
        what="comparing",
    )
    for key in QUANTITIES:
        if any(record.get(key) is not None for record in records):
            print_records(console, records, key)
    data = Path(config.data).name
    plot_axes(records, output / "curves.png", title=f"{data}, equal work")
    write_report(records, output / "report.html", title=f"{data}: equal work for each")
    typer.echo(f"{output / 'curves.png'}, {output / 'report.html'}, {file}")
