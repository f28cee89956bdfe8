"""Checkpoints that a crash cannot spoil: written beside, moved into place, the last two kept."""

import os
import re
import warnings
import zlib
from pathlib import Path
from typing import Any

import torch

__all__ = ["Checkpoints"]

_NAME = re.compile(r"step-(\d+)-([0-9a-f]{8})\.pt")


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
        self.directory.mkdir(parents=True, exist_ok=True)
        beside = self.directory / f".writing-{os.getpid()}"
        try:
            with beside.open("wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            path = self.directory / f"step-{step:010d}-{_checksum(beside):08x}.pt"
            os.replace(beside, path)
        except (OSError, RuntimeError) as error:
            # torch's zip writer turns a full disk into a RuntimeError.
            beside.unlink(missing_ok=True)
            raise OSError(f"cannot write a checkpoint to {self.directory}: {error}") from error
        _sync(self.directory)
        for old in self._newest_first()[self.keep :]:
            old.unlink(missing_ok=True)
        for left in self.directory.glob(".writing-*"):
            left.unlink(missing_ok=True)  # of a process that was killed while it wrote
        return path

    def load(self, device: str = "cpu") -> dict[str, Any] | None:
        """The newest that is whole, or None; a spoiled one is passed over with a warning."""
        for path in self._newest_first():
            named = _NAME.fullmatch(path.name)
            try:
                if named is None or _checksum(path) != int(named[2], 16):
                    raise ValueError("its bytes are not those that were written")
                state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
            except Exception as error:
                warnings.warn(
                    f"checkpoint {path} is spoiled ({error}); going back to the one before",
                    stacklevel=2,
                )
                continue
            return state
        return None

    def _newest_first(self) -> list[Path]:
        return sorted(self.directory.glob("step-*.pt"), reverse=True)


def _checksum(path: Path) -> int:
    total = 0
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            total = zlib.crc32(part, total)
    return total


def _sync(directory: Path) -> None:
    """Make a rename durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
