"""The directory of a run: one process at a time, and one run for good."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fcco_lab.files import remove, remove_leftovers, write
from fcco_lab.training.checkpoints import Checkpoints

__all__ = ["claim", "difference"]

_FILES = ("tensorboard", "metrics.jsonl", "model.pt", "record.json", "config.json")
"""What a run writes there; config.json, first written and last removed, says that it is a run's."""

_FREE = {"device"}
"""Settings that may change while a run goes on: a machine may have no other device."""


@contextmanager
def claim(output: Path, identity: Mapping[str, Any], *, restart: bool = False) -> Iterator[None]:
    """Hold the directory for the run of this identity.

    Args:
        output: made if it is missing.
        identity: as ``difference`` compares it.
        restart: remove the run that is there, and nothing else.

    Raises:
        ValueError: another run is in the directory, or another process is using it.
    """
    import fcntl  # which is not on Windows

    _check(output, identity, restart=restart)  # before anything is written there
    try:
        output.mkdir(parents=True, exist_ok=True)
        lock = (output / "run.lock").open("a")
    except OSError as error:
        raise OSError(f"cannot write to {output}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"{output} is in use by another process: wait for it to end, or name another output"
            ) from None
        except OSError:
            pass  # a file system without locks
        _check(output, identity, restart=restart)  # again: it may have been taken meanwhile
        checkpoints = Checkpoints(output / "checkpoints")
        remove_leftovers(output)
        remove_leftovers(checkpoints.directory)
        if restart:
            for path in (*checkpoints.newest_first(), *(output / name for name in _FILES)):
                remove(path)
        if not (output / "config.json").exists():
            write(output / "config.json", json.dumps(identity, indent=1) + "\n")
        yield


def difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    """The first thing that tells two runs apart, in words; None: it is the same run.

    Args:
        there: the identity found on the disk: the settings of a run, and its data.
        here: that of this run.

    Examples:
        >>> difference({"lr": 0.01, "device": "cpu"}, {"lr": 0.5, "device": "cuda"})
        'lr is 0.01 there, 0.5 here'
    """
    for key in (*here, *there):
        if key not in _FREE and there.get(key) != here.get(key):
            return f"{key} is {there.get(key)!r} there, {here.get(key)!r} here"
    return None


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
