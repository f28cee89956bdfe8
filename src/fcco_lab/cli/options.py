"""Options that several commands share, and a flag for every setting of a run."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, fields, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from fcco_lab.training import Config, read_toml
from fcco_lab.training.ranks import fail_together, process_group
from fcco_lab.training.setting import describe, kinds

__all__ = ["DataDir", "Workers", "make_config", "takes_settings"]

DataDir = Annotated[Path | None, typer.Option(envvar="FCCO_DATA", help="Where the data sets are.")]
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
_SET = Annotated[
    list[str] | None,
    typer.Option("--set", rich_help_panel=_PANEL, help="A setting as key=value; can be repeated."),
]

Command = Callable[..., None]


def takes_settings(*, but: Sequence[str] = ()) -> Callable[[Command], Command]:
    """Give a command a flag for every field of ``Config``, and call it with the config.

    A command with one method has the objective that suits it as the default. Started by torchrun,
    the command runs in the process group of all its processes.

    Args:
        but: fields that the command sets itself.
    """
    flags = {field.name: _flag(field) for field in fields(Config) if field.name not in but}
    if "method" in flags:
        (objective,) = (field for field in fields(Config) if field.name == "objective")
        flags["objective"] = _flag(objective, "auc-exp, or auc-odds if slopes are stale")

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(*, file: Path | None, words: list[str] | None, **given: Any) -> None:
            settings = {name: given.pop(name) for name in flags}
            with process_group():
                with fail_together():
                    config = make_config(file, words or (), settings)
                command(config, **given)

        _, *own = inspect.signature(command).parameters.values()
        more = [_parameter("file", _FILE), _parameter("words", _SET), *flags.values()]
        run.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
        return run

    return decorate


def _flag(field: Field[Any], default: str = "") -> inspect.Parameter:
    kind: Any = str if len(kinds(field)) > 1 else field.type
    shown = default or str(field.default).lower()
    option = typer.Option(rich_help_panel=_PANEL, help=describe(field), show_default=shown)
    return _parameter(field.name, Annotated[kind | None, option])


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    """An option that is None unless it is given."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def make_config(file: Path | None, words: Sequence[str], flags: Mapping[str, Any]) -> Config:
    """Defaults, then the file, then ``--set``, then the flags that were given (not None).

    Examples:
        >>> make_config(None, ["lr=0.1", "gamma=age"], {"alpha": 0.9, "beta": None}).lr
        0.1
    """
    given: dict[str, Any] = {} if file is None else read_toml(file)
    typed: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"--set takes key=value, such as lr=0.1, got {word!r}")
        typed[key.strip().replace("-", "_")] = text.strip()
    typed |= {key: value for key, value in flags.items() if value is not None}
    given |= Config.parsed(typed)
    config = Config.from_dict(given)
    if "method" in flags and "objective" not in given:
        config = replace(config, objective=config.usual_objective)
    if given.get("updated_slopes") is False and config.objective == "auc-exp":
        raise ValueError(
            "auc-exp needs slopes at u_t: leave updated_slopes=false out, or use objective auc-odds"
        )
    return config
