"""Options that several commands share, and a flag for every setting of a run."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from fcco_lab.training import Config, read_toml
from fcco_lab.training.config import describe, kinds
from fcco_lab.training.ranks import process_group

__all__ = ["DataDir", "Output", "Workers", "make_config", "takes_settings"]

DataDir = Annotated[Path | None, typer.Option(envvar="FCCO_DATA", help="Where the data sets are.")]
Output = Annotated[Path, typer.Option(help="Where results are kept; the same place resumes.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes, one thread each (default: all cores).")
]

_PANEL = "Settings of a run"

_FILE = Annotated[
    Path | None,
    typer.Option(
        "--config", rich_help_panel=_PANEL, help="A TOML file of these settings; flags override it."
    ),
]

Command = Callable[..., None]


def takes_settings(*, but: Sequence[str] = ()) -> Callable[[Command], Command]:
    """Give a command a flag for every field of ``Config``, and call it with the config.

    A command with one method has the objective that suits it as the default. Started by torchrun,
    the command runs in the process group of all its processes.

    Args:
        but: fields that the command sets itself.
    """
    flags = {}
    for field in fields(Config):
        shown = str(field.default).lower()
        if field.name == "objective" and "method" not in but:
            shown = "auc-exp, or auc-odds if slopes are stale"
        kind: Any = str if len(kinds(field)) > 1 else field.type
        option = typer.Option(rich_help_panel=_PANEL, help=describe(field), show_default=shown)
        if field.name not in but:
            flags[field.name] = Annotated[kind | None, option]

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(*, file: Path | None, **given: Any) -> None:
            settings = {name: given.pop(name) for name in flags}
            with process_group():
                command(make_config(file, settings), **given)

        _, *own = inspect.signature(command).parameters.values()
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in {"file": _FILE, **flags}.items()
        ]
        run.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
        return run

    return decorate


def make_config(file: Path | None, flags: Mapping[str, Any]) -> Config:
    """Defaults, then the file, then the flags that were given (not None).

    Examples:
        >>> make_config(None, {"lr": 0.1, "gamma": "0.5", "beta": None}).gamma
        0.5
    """
    given: dict[str, Any] = {} if file is None else read_toml(file)
    for field in fields(Config):
        value = flags.get(field.name)
        if value is None:
            continue
        with suppress(ValueError):  # a word
            value = float(value) if len(kinds(field)) > 1 else value
        given[field.name] = value
    config = Config.from_dict(given)
    if "method" in flags and "objective" not in given:
        config = replace(config, objective=config.usual_objective)
    return config
