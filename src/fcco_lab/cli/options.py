"""Options that several commands share, and a config made of flags and files."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fcco_lab.networks import NETWORKS
from fcco_lab.training import Config, read_toml
from fcco_lab.training.config import CHOICES
from fcco_lab.training.crew import check_device

__all__ = [
    "ConfigFile",
    "DataDir",
    "DataName",
    "MethodName",
    "NetworkName",
    "Settings",
    "UpdateName",
    "Workers",
    "make_config",
]

DataDir = Annotated[
    Path | None,
    typer.Option(envvar="FCCO_DATA", help="Where the data sets are; see fcco data."),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes, one thread each (default: all cores).")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="A TOML file of settings; flags win over it."),
]
DataName = Annotated[
    str | None,
    typer.Option("--data", help="A data set by name; see fcco data.", show_default="digits"),
]
MethodName = Annotated[
    str | None,
    typer.Option("--method", help=f"{', '.join(CHOICES['method'])}.", show_default=Config.method),
]
UpdateName = Annotated[
    str | None,
    typer.Option(
        "--update", help=f"Step rule: {', '.join(CHOICES['update'])}.", show_default=Config.update
    ),
]
NetworkName = Annotated[
    str | None, typer.Option("--network", help=f"{', '.join(NETWORKS)}.", show_default="cnn")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any further setting as key=value; may be given several times."),
]


def make_config(file: Path | None, settings: list[str] | None, flags: dict[str, Any]) -> Config:
    """Defaults, then the file, then ``--set``, then the flags that were given (not None).

    Examples:
        >>> make_config(None, ["lr=0.1", "gamma=age"], {"alpha": 0.9, "beta": None}).lr
        0.1
    """
    given: dict[str, Any] = {} if file is None else read_toml(file)
    for setting in settings or ():
        key, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"--set takes key=value, got {setting!r}")
        given[key.strip().replace("-", "_")] = _value(text.strip())
    given |= {key: value for key, value in flags.items() if value is not None}
    if isinstance(given.get("gamma"), str):
        given["gamma"] = _value(given["gamma"])
    config = Config.of(given)
    check_device(config.device)
    return config


def _value(text: str) -> Any:
    """A number or a truth value if it reads like one, else the text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
