"""Checkpoints that a crash cannot spoil: written beside, moved into place, the last two kept."""

import errno
import os
import re
import warnings
from pathlib import Path
from typing import Any

import torch

from fcco.experiments.training.files import checksum, write_summed

__all__ = ["Checkpoints"]

_NAME = re.compile(r"step-\d+-[0-9a-f]{8}\.pt")


class Checkpoints:
    """A directory of checkpoints, the newest of which can be trusted or is passed over.

    The name of a file says its step and the checksum of its bytes (torch's own format would load
    flipped bits without a word). Neither saving nor loading holds a second copy of what is kept:
    tensors go straight to the file, and come as views of it.

    Args:
        directory: made when the first is saved.
        keep: how many of the newest stay.
    """

    def __init__(self, directory: Path, *, keep: int = 2) -> None:
        self.directory = directory
        self.keep = keep

    def save(self, state: dict[str, Any], *, step: int) -> Path:
        """Write ``state``; it is on the disk, whole, when this returns, or nothing has changed."""

        def name(checksum: int) -> Path:
            return self.directory / f"step-{step:010d}-{checksum:08x}.pt"

        beside = self.directory / f".writing-{os.getpid()}"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._sweep()
            path = write_summed(name, lambda file: torch.save(state, file), beside=beside)
        except OSError as error:
            why = error.strerror or error
            raise OSError(f"cannot write a checkpoint to {self.directory}: {why}") from error
        self._tidy(path)
        return path

    def load(self) -> dict[str, Any] | None:
        """The newest that is whole, or None; a spoiled one is passed over with a warning.

        Its tensors lie in the file, whose pages are read when they are looked at and can be
        dropped again: copy them, and keep none. The file may be removed meanwhile.

        Raises:
            MemoryError: there is too little to look at it; that does not make it spoiled.
        """
        found = self._newest_first()
        for place, path in enumerate(found, 1):
            try:
                return _read(path)
            except (OSError, ValueError) as error:
                instead = "going back to the one before" if place < len(found) else "starting anew"
                warnings.warn(
                    f"checkpoint {path} is spoiled ({error}); {instead}",
                    stacklevel=2,
                )
        return None

    def _tidy(self, newest: Path) -> None:
        """Remove all but ``newest`` and those before it that are to be kept."""
        # What claims to be later was passed over when the run went on from an earlier one: it is
        # spoiled, and must not take the place of one that is not.
        found = self._newest_first()
        older = [path for path in found if _step(path) < _step(newest)]
        for path in set(found) - {newest, *older[: self.keep - 1]}:
            path.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Remove what processes left that were killed while they wrote; it may be large."""
        for left in self.directory.glob(".writing-*"):
            left.unlink(missing_ok=True)

    def _newest_first(self) -> list[Path]:
        found = filter(lambda path: _NAME.fullmatch(path.name), self.directory.glob("step-*.pt"))
        return sorted(found, reverse=True)


def _step(path: Path) -> int:
    return int(path.name.split("-")[1])


def _read(path: Path) -> dict[str, Any]:
    if not path.name.endswith(f"-{checksum(path):08x}.pt"):
        raise ValueError("its bytes are not those that were written")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on the dialect of a file that is not ours
            # On the CPU whatever the device: there it would stand beside the live one.
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        if isinstance(error, MemoryError) or os.strerror(errno.ENOMEM) in str(error):
            raise MemoryError(f"too little memory to read checkpoint {path}") from error
        # torch's own words go on for a page, and advise to run what is in the file.
        raise ValueError(f"it is not one of ours: {type(error).__name__}") from error
    if not isinstance(state, dict):
        raise ValueError(f"it is not one of ours: a {type(state).__name__}")
    return state
