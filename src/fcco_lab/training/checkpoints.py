"""Checkpoints that a crash cannot spoil: written beside, moved into place, the last two kept."""

import errno
import os
import re
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fcco.optim.caller import users_line
from fcco_lab.training.crew import Crew
from fcco_lab.training.files import checksum, sync, write_summed
from fcco_lab.training.shards import INDEX, check_shards, read_shards, write_shards

__all__ = ["Checkpoints"]

_NAME = re.compile(r"step-\d+-[0-9a-f]{8}(\.pt)?")


class Checkpoints:
    """A directory of checkpoints, the newest of which can be trusted or is passed over.

    The name of a file says its step and the checksum of its bytes (torch's own format would load
    flipped bits without a word). Neither saving nor loading holds a second copy of what is kept:
    tensors go straight to the file, and come as views of it. Several ranks write a directory
    instead of a file; any number of ranks can read either.

    Args:
        directory: made when the first is saved; all ranks must see the same one.
        keep: how many of the newest stay.
        crew: the ranks, all of which save and load together; None: all there are.
    """

    def __init__(self, directory: Path, *, keep: int = 2, crew: Crew | None = None) -> None:
        self.directory = directory
        self.keep = keep
        self.crew = Crew() if crew is None else crew

    def save(self, state: dict[str, Any], *, step: int) -> Path:
        """Write ``state``; it is on the disk, whole, when this returns, or nothing has changed."""
        try:
            with self.crew.together():
                if self.crew.lead:
                    self.directory.mkdir(parents=True, exist_ok=True)
                    self._sweep()
            if self.crew.size == 1:
                path = self._save_file(state, f"step-{step:010d}")
            else:
                path = self._save_shards(state, f"step-{step:010d}")
        except OSError as error:
            why = error.strerror or error
            raise OSError(f"cannot write a checkpoint to {self.directory}: {why}") from error
        with self.crew.together():
            if self.crew.lead:
                self._tidy(path)
        return path

    def _save_file(self, state: dict[str, Any], name: str) -> Path:
        return write_summed(
            lambda checksum: self.directory / f"{name}-{checksum:08x}.pt",
            lambda file: torch.save(state, file),
            beside=self.directory / f".writing-{os.getpid()}",
        )

    def _save_shards(self, state: dict[str, Any], name: str) -> Path:
        beside, path = self.directory / ".writing-shards", self.directory
        write_shards(beside, state, self.crew)
        with self.crew.together():
            if self.crew.lead:
                sync(beside)
                path = self.directory / f"{name}-{checksum(beside / INDEX):08x}"
                os.replace(beside, path)
                sync(self.directory)
        told: Path = self.crew.told(path)
        return told

    def load(self, live: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """The newest that is whole, or None; a spoiled one is passed over with a warning.

        The tensors of a file lie in it; its pages are read when they are looked at and can be
        dropped again: copy them, and keep none. The file may be removed meanwhile.

        Args:
            live: a state of the run; what several ranks wrote is read into its tensors, and
                returned in the same.

        Raises:
            MemoryError: there is too little to look at it; that does not make it spoiled.
        """
        path = state = None
        with self.crew.together():
            if self.crew.lead:
                path, state = self._newest_whole()
        path = self.crew.told(path)
        if path is not None and self.crew.told(path.is_dir()):
            return read_shards(path, live or {}, self.crew)
        with self.crew.together():
            if path is not None and state is None:
                state = _open(path)
        return state

    def _newest_whole(self) -> tuple[Path | None, dict[str, Any] | None]:
        """Its name, and what it holds if that is looked at by opening it."""
        found = self._newest_first()
        for place, path in enumerate(found, 1):
            try:
                if path.is_dir():
                    check_shards(path)
                    return path, None
                return path, _read(path)
            except (OSError, ValueError) as error:
                instead = "going back to the one before" if place < len(found) else "starting anew"
                warnings.warn(
                    f"checkpoint {path} is spoiled ({error}); {instead}",
                    stacklevel=users_line(),
                )
        return None, None

    def _tidy(self, newest: Path) -> None:
        """Remove all but ``newest`` and those before it that are to be kept."""
        # What claims to be later was passed over when the run went on from an earlier one: it is
        # spoiled, and must not take the place of one that is not.
        found = self._newest_first()
        older = [path for path in found if _step(path) < _step(newest)]
        for path in set(found) - {newest, *older[: self.keep - 1]}:
            _remove(path)

    def _sweep(self) -> None:
        """Remove what processes left that were killed while they wrote; it may be large."""
        for left in self.directory.glob(".writing-*"):
            _remove(left)

    def _newest_first(self) -> list[Path]:
        found = filter(lambda path: _NAME.fullmatch(path.name), self.directory.glob("step-*"))
        return sorted(found, reverse=True)


def _remove(path: Path) -> None:
    if path.is_dir():
        gone = path.with_name(".writing-removed")  # never half of one under its own name
        shutil.rmtree(gone, ignore_errors=True)
        os.replace(path, gone)
        shutil.rmtree(gone, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _step(path: Path) -> int:
    return int(path.name.split("-")[1])


def _read(path: Path) -> dict[str, Any]:
    if not path.name.endswith(f"-{checksum(path):08x}.pt"):
        raise ValueError("its bytes are not those that were written")
    return _open(path)


def _open(path: Path) -> dict[str, Any]:
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
