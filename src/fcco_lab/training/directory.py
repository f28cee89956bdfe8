"""The directory of a run: one process at a time, and one run for good."""

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fcco.optim.arguments import user_stacklevel
from fcco_lab.files import remove, remove_leftovers, write
from fcco_lab.training.checkpoints import Checkpoints, difference

__all__ = ["claim"]

_FILES = ("metrics.jsonl", "model.pt", "record.json", "config.json")
"""What a run writes there; config.json, first written and last removed, says that it is a run's."""


@contextmanager
def claim(output: Path, identity: Mapping[str, Any], *, restart: bool = False) -> Iterator[None]:
    """Hold the directory for the run of this identity.

    Args:
        output: made if it is missing.
        identity: as ``difference`` compares it.
        restart: remove the run that is there, and nothing else.

    Raises:
        ValueError: another run is in the directory.
        BlockingIOError: a process is using the directory.
    """
    _check(output, identity, restart=restart)  # before anything is written there
    try:
        output.mkdir(parents=True, exist_ok=True)
        lock = (output / "run.lock").open("a+")
    except OSError as error:
        raise OSError(f"cannot write to {output}: {error.strerror}") from error
    with lock:
        _lock(lock.fileno(), output)
        _check(output, identity, restart=restart)  # again: it may have been taken meanwhile
        checkpoints = Checkpoints(output / "checkpoints")
        remove_leftovers(output)
        if not checkpoints.directory.is_symlink():  # else others may be writing there
            remove_leftovers(checkpoints.directory)
        if restart:
            checkpoints.clear()
            for name in ("tensorboard", *_FILES):
                remove(output / name)
        if not (output / "config.json").exists():
            write(output / "config.json", json.dumps(identity, indent=1) + "\n")
        yield


def _lock(file: int, output: Path) -> None:
    import fcntl  # which is not on Windows

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = (output / "run.lock").read_text().strip() or "another process"
        raise BlockingIOError(
            f"{output} is in use by {holder}: wait for it to end, or name another output"
        ) from None
    except OSError as error:
        warnings.warn(
            f"{output} cannot be locked ({error.strerror}): start no second process there",
            stacklevel=user_stacklevel(),
        )
        return
    os.truncate(file, 0)
    os.write(file, f"process {os.getpid()} on {os.uname().nodename}\n".encode())


def _check(output: Path, identity: Mapping[str, Any], *, restart: bool) -> None:
    """Raise a ``ValueError`` unless the directory is free, or the run's, or may be made so."""
    file = output / "config.json"
    if not file.exists():
        found = [output / name for name in _FILES if (output / name).exists()]
        if found := [*found, *Checkpoints(output / "checkpoints").newest_first()]:
            raise ValueError(
                f"{found[0]} is there, but no config.json to say of which run: name another "
                "output, or move it away"
            )
        return
    try:
        there = json.loads(file.read_text())
    except ValueError:
        there = None
    if not isinstance(there, dict) or "method" not in there:
        raise ValueError(f"{file} is not the config of a run: name another output")
    if not restart and (what := difference(there, identity)):
        raise ValueError(
            f"{output} holds another run ({what}): name another output, or begin anew there with "
            "--restart"
        )
