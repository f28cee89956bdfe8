"""The directory of a run: whose it is, taking it, and emptying it."""

import json
import shutil
from pathlib import Path
from typing import Any

from fcco_lab.training.config import Config
from fcco_lab.training.files import write_text

__all__ = ["check_free", "claim", "discard"]

_FILES = ("metrics.jsonl", "model.pt", "record.json", "config.json")
_FOLDERS = ("checkpoints", "tensorboard")


def check_free(output: Path, config: Config) -> None:
    """Raise a ``ValueError`` that says what of another run is in the directory, if one is."""
    there, mine = _owner(output), config.as_record()
    if there:  # one of an earlier version lacks what there was not to choose then
        there = Config().as_record() | there
    differing = [key for key in mine if there and there.get(key) != mine[key]]
    if there and differing:
        key = differing[0]
        raise ValueError(
            f"{output} holds another run ({key} is {there.get(key)!r} there, {mine[key]!r} here): "
            "name another output, or remove it"
        )


def claim(output: Path, config: Config) -> None:
    """Make the directory this config's."""
    file = output / "config.json"
    try:
        output.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            write_text(file, json.dumps(config.as_record(), indent=1) + "\n")
    except OSError as error:
        raise OSError(f"cannot write to {output}: {error.strerror or error}") from error


def discard(output: Path) -> None:
    """Remove the run that is in the directory, and nothing else that may be there."""
    if _owner(output) is None:
        return
    for folder in _FOLDERS:
        shutil.rmtree(output / folder, ignore_errors=True)
    for file in _FILES:
        (output / file).unlink(missing_ok=True)


def _owner(output: Path) -> dict[str, Any] | None:
    """The config of the run that is there, as it was written, or None."""
    file = output / "config.json"
    try:
        there = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OSError(f"cannot write to {output}: {error.strerror or error}") from error
    except ValueError:
        there = None
    if not isinstance(there, dict) or "method" not in there:
        raise ValueError(f"{file} is not the config of a run: name another output")
    return there
