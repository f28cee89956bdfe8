"""The commands, each in a file of its own."""

from typing import Annotated

import typer

from fcco import __version__
from fcco_lab.cli.compare import compare
from fcco_lab.cli.data import data
from fcco_lab.cli.demo import demo
from fcco_lab.cli.rates import rates
from fcco_lab.cli.recipes import recipes
from fcco_lab.cli.report import report
from fcco_lab.cli.reproduce import reproduce
from fcco_lab.cli.study import study
from fcco_lab.cli.train import train
from fcco_lab.cli.tune import tune

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Finite-sum coupled compositional optimization: train, compare and measure.",
    epilog="An error is one line; --debug, anywhere on it, shows where it came from.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fcco {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    pass


for command in (
    demo,
    data,
    train,
    compare,
    tune,
    reproduce,
    report,
    recipes,
    rates,
    study,
):
    app.command()(command)
