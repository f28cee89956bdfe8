"""The commands by name. The module of a command, and torch, are imported when it is called."""

import ast
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.main import get_command

__all__ = ["COMMANDS", "app"]

COMMANDS = (
    "demo",
    "data",
    "train",
    "compare",
    "tune",
    "reproduce",
    "report",
    "recipes",
    "rates",
    "benchmark",
)
"""Each is the function of this name in the module of this name."""

_LOOK: dict[str, Any] = {
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
    **_LOOK,
)


class _OnDemand(TyperCommand):
    """A placeholder in ``fcco --help`` that loads the command when it is called."""

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> Any:
        module = import_module(f"fcco_lab.cli.{self.name}")
        alone = typer.Typer(**_LOOK)
        alone.command(context_settings=_LOOK["context_settings"])(getattr(module, str(self.name)))
        return get_command(alone).make_context(info_name, args, *more, **extra)


def _first_line(name: str) -> str:
    """The first line of a command's docstring, read without importing its module."""
    tree = ast.parse(Path(__file__).with_name(f"{name}.py").read_text("utf-8"))
    (function,) = (
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name
    )
    return (ast.get_docstring(function) or "").partition("\n")[0]


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


for name in COMMANDS:
    app.command(name, cls=_OnDemand, help=_first_line(name))(lambda: None)
