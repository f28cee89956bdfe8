"""The commands by name. The module of a command, and torch, are imported when it is called."""

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.main import get_command

__all__ = ["COMMANDS", "app"]

COMMANDS = {
    "demo": "F1 and Cox at batch sizes from 64 to 1, and the paper's methods.",
    "train": "Train a network on a data set by name or on your own file, and test it.",
    "compare": "Train with several methods and seeds under equal work, and compare.",
    "tune": "Find lr, alpha and beta on a held-out part of the training set.",
    "reproduce": "Tune, run and draw one of the paper's figures or tables.",
    "report": "Write one HTML page with plots and tables of any set of runs.",
    "rates": "Measure the rate of every theorem, beside what it claims.",
    "benchmark": "Compare solvers on problems with a known optimum, and say who wins where.",
}
"""Each is the function of this name in the module of this name."""

_SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "markdown",
    # Names of commands and flags may be typed in any case.
    "context_settings": {
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": str.lower,
    },
}

app = typer.Typer(
    no_args_is_help=True,
    help="Finite-sum coupled compositional optimization: train, compare and measure.",
    epilog="An error is one line; --debug, anywhere on it, shows where it came from.",
    **_SETTINGS,
)


class _OnDemand(TyperCommand):
    """A placeholder in ``fcco --help`` that loads the command when it is called."""

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> Any:
        module = import_module(f"fcco_lab.cli.{self.name}")
        alone = typer.Typer(**_SETTINGS)
        function = getattr(module, str(self.name))
        alone.command(context_settings=_SETTINGS["context_settings"])(function)
        return get_command(alone).make_context(info_name, args, *more, **extra)


def _version(wanted: bool) -> None:
    if wanted:
        from fcco import __version__

        typer.echo(f"fcco {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


for name, help in COMMANDS.items():
    app.command(name, cls=_OnDemand, help=help)(lambda: None)
