"""The commands, each in a file of its own."""

from typing import Annotated

import typer

from fcco import __version__
from fcco.cli.compare import compare
from fcco.cli.data import data
from fcco.cli.demo import demo
from fcco.cli.rates import rates
from fcco.cli.recipes import recipes
from fcco.cli.report import report
from fcco.cli.reproduce import reproduce
from fcco.cli.study import study
from fcco.cli.train import train
from fcco.cli.tune import tune

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
