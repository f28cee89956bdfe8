"""The directory of a run: one process at a time, and one run for good."""

import json
import os
import socket
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fcco.optim.arguments import user_stacklevel
from fcco_lab.files import regular, remove, sweep, write
from fcco_lab.training.checkpoints import Checkpoints
from fcco_lab.training.identity import difference

__all__ = ["claimed"]

_FILES = ("metrics.jsonl", "model.pt", "record.json", "config.json")
"""What a run writes there; config.json, first written and last removed, says that it is a run's."""


@contextmanager
def claimed(output: Path, identity: Mapping[str, Any], *, restart: bool = False) -> Iterator[None]:
    """Hold the directory for the run of this identity, or say who has it.

    Args:
        output: made if it is missing.
        identity: as ``difference`` compares it.
        restart: remove the run that is there, and nothing else.

    Raises:
        ValueError: another run is in the directory.
        BlockingIOError: a process is using the directory.
    """
    with _writing_to(output):
        _check(output, identity, restart=restart)
        output.mkdir(parents=True, exist_ok=True)
        lock = os.open(output / "run.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        alone = _locked(lock, output)
        with _writing_to(output):
            _check(output, identity, restart=restart)  # again: it may have been taken meanwhile
            if alone:  # so whoever left temporary files is gone
                sweep(output, *_FILES)
                if not (output / "checkpoints").is_symlink():  # else others may be writing there
                    sweep(output / "checkpoints", "step-*")
            if restart:
                _discard(output)
            if not (output / "config.json").exists():
                write(output / "config.json", json.dumps(identity, indent=1) + "\n")
        yield
    finally:
        os.close(lock)


def _locked(lock: int, output: Path) -> bool:
    """Lock the file; False, with a warning, where the file system has no locks."""
    import fcntl  # which is not on Windows

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(lock, 1000).decode(errors="replace").strip() or "another process"
        raise BlockingIOError(
            f"{output} is in use by {holder}: wait for it to end, or name another output"
        ) from None
    except OSError as error:
        warnings.warn(
            f"{output} cannot be locked ({error.strerror}): start no second process there",
            stacklevel=user_stacklevel(),
        )
        return False
    os.truncate(lock, 0)
    os.write(lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    return True


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
        there = json.loads(regular(file).read_text())
    except ValueError:
        there = None
    if not isinstance(there, dict) or "method" not in there:
        raise ValueError(f"{file} is not the config of a run: name another output")
    if not restart and (what := difference(there, identity)):
        raise ValueError(
            f"{output} holds another run ({what}): name another output, or begin anew there with "
            "--restart"
        )


def _discard(output: Path) -> None:
    Checkpoints(output / "checkpoints").clear()
    for name in ("tensorboard", *_FILES):
        remove(output / name)


@contextmanager
def _writing_to(output: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(f"cannot write to {output}: {error.strerror or error}") from error
