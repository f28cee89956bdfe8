"""Checkpoints that a crash cannot spoil: written beside, moved into place, the last two kept."""

import io
import os
import re
import warnings
import zlib
from pathlib import Path
from typing import Any

import torch

from fcco.experiments.training.files import write_bytes

__all__ = ["Checkpoints"]

_NAME = re.compile(r"step-\d+-[0-9a-f]{8}\.pt")


class Checkpoints:
    """A directory of checkpoints, the newest of which can be trusted or is passed over.

    The name of a file says its step and the checksum of its bytes (torch's own format would load
    flipped bits without a word).

    Args:
        directory: made when the first is saved.
        keep: how many of the newest stay.
    """

    def __init__(self, directory: Path, *, keep: int = 2) -> None:
        self.directory = directory
        self.keep = keep

    def save(self, state: dict[str, Any], *, step: int) -> Path:
        """Write ``state``; it is on the disk, whole, when this returns, or nothing has changed."""
        # In memory first: torch, writing to a full disk, would report a position in a zip file.
        written = io.BytesIO()
        torch.save(state, written)
        data = written.getbuffer()
        path = self.directory / f"step-{step:010d}-{zlib.crc32(data):08x}.pt"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            write_bytes(path, data, beside=self.directory / f".writing-{os.getpid()}")
        except OSError as error:
            why = error.strerror or error
            raise OSError(f"cannot write a checkpoint to {self.directory}: {why}") from error
        self._tidy(path)
        return path

    def load(self, device: str = "cpu") -> dict[str, Any] | None:
        """The newest that is whole, or None; a spoiled one is passed over with a warning."""
        found = self._newest_first()
        for place, path in enumerate(found, 1):
            try:
                return _read(path, device)
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
        for left in self.directory.glob(".writing-*"):
            left.unlink(missing_ok=True)  # of a process that was killed while it wrote

    def _newest_first(self) -> list[Path]:
        found = filter(lambda path: _NAME.fullmatch(path.name), self.directory.glob("step-*.pt"))
        return sorted(found, reverse=True)


def _step(path: Path) -> int:
    return int(path.name.split("-")[1])


def _read(path: Path, device: str) -> dict[str, Any]:
    data = path.read_bytes()
    if not path.name.endswith(f"-{zlib.crc32(data):08x}.pt"):
        raise ValueError("its bytes are not those that were written")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on the dialect of a file that is not ours
            state = torch.load(io.BytesIO(data), map_location=device, weights_only=True)
    except Exception as error:
        # torch's own words go on for a page, and advise to run what is in the file.
        raise ValueError(f"it is not one of ours: {type(error).__name__}") from error
    if not isinstance(state, dict):
        raise ValueError(f"it is not one of ours: a {type(state).__name__}")
    return state
