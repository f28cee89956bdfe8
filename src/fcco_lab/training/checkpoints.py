"""Checkpoints that a crash cannot spoil: written beside, moved into place, the last two kept."""

import errno
import os
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from fcco.optim.arguments import user_stacklevel
from fcco_lab.files import checksum, regular, remove, write
from fcco_lab.training.crew import Crew
from fcco_lab.training.descriptions import reader_of
from fcco_lab.training.identity import difference
from fcco_lab.training.shards import INDEX, read_shards, write_shards
from fcco_lab.training.trees import layout

__all__ = ["Checkpoints"]

_NAME = re.compile(r"step-\d+-[0-9a-f]{8}(\.pt)?")


class Checkpoints:
    """A directory of checkpoints, of which the newest that is whole is used.

    The name of a file says its step and the checksum of its bytes (torch's own format would load
    flipped bits without a word). Neither saving nor loading holds a second copy of the state:
    tensors go straight to the file, and come as views of it. Several ranks write a directory
    instead of a file; any number of ranks can read either.

    Args:
        directory: made when the first is saved; all ranks must see the same one.
        identity: of the run, kept in every checkpoint; one of another run is an error. None: any
            run's is taken.
        crew: the ranks, all of which save and load together; None: all there are.
    """

    def __init__(
        self,
        directory: Path,
        *,
        identity: Mapping[str, Any] | None = None,
        crew: Crew | None = None,
    ) -> None:
        self.directory, self.identity = directory, identity
        self.crew = Crew() if crew is None else crew

    def save(self, state: dict[str, Any], *, step: int) -> Path:
        """Write ``state``; it is on the disk, whole, when this returns, or nothing has changed."""
        path = self.directory / f"step-{step:010d}"
        content = {"identity": dict(self.identity or {}), "layout": layout(state), "state": state}
        try:
            if self.crew.size == 1:
                file = path.with_suffix(".pt")
                path = write(file, lambda stream: torch.save(content, stream), summed=True)
            else:
                path = write_shards(path, content, self.crew)
        except OSError as error:
            why = error.strerror or error
            raise OSError(f"cannot write a checkpoint to {self.directory}: {why}") from error
        with self.crew.together():
            if self.crew.lead:
                self._tidy(path)
        return path

    def load(self, live: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """The newest that is whole, or None; a spoiled one is passed over with a warning.

        The tensors of a file lie in it; its pages are read when they are looked at and can be
        dropped again: copy them, and keep none. The file may be removed meanwhile.

        Args:
            live: a state of the run, of which a checkpoint must have all tensors. What several
                ranks wrote is read into these, and returned in the same.

        Raises:
            ValueError: there is a checkpoint of another run.
            MemoryError: there is too little to look at it; that does not make it spoiled.
        """
        live, path = {} if live is None else live, None
        with self.crew.together():
            if self.crew.lead:
                path = self._newest_whole(live)
        if (path := self.crew.told(path)) is None:
            return None
        with self.crew.together():
            state: dict[str, Any] = _open(path)["state"]
        if self.crew.told(path.is_dir()):
            return read_shards(path, state, live, self.crew)
        return state

    def clear(self) -> None:
        """Remove all of them; if the directory is a link, the link alone."""
        if self.directory.is_symlink():
            self.directory.unlink()
        for path in self.newest_first():
            remove(path)
        with suppress(OSError):  # what else is there is not ours
            self.directory.rmdir()

    def newest_first(self) -> list[Path]:
        """Whatever has the name of a checkpoint."""
        found = filter(lambda path: _NAME.fullmatch(path.name), self.directory.glob("step-*"))
        return sorted(found, reverse=True)

    def _newest_whole(self, live: Mapping[str, Any]) -> Path | None:
        """Also looks at the older ones, for none may be another run's."""
        found, newest = self.newest_first(), None
        for place, path in enumerate(found, 1):
            try:
                if newest is None:
                    _check_bytes(path)
                if other := self._other_run(content := _open(path)):
                    _check_bytes(path)
                elif newest is None:
                    _check_layout(content, live)
                    newest = path
            except (OSError, ValueError) as error:
                if newest is None:
                    last = place == len(found)
                    instead = "starting anew" if last else "going back to the one before"
                    warnings.warn(
                        f"checkpoint {path} is spoiled ({error}); {instead}",
                        stacklevel=user_stacklevel(),
                    )
                continue
            if other:
                raise ValueError(
                    f"checkpoint {path} is of another run ({other}): move it away, or "
                    "begin anew with --restart"
                )
        return newest

    def _other_run(self, content: Mapping[str, Any]) -> str | None:
        """How the run that wrote a checkpoint differs from this one."""
        there = content.get("identity", content.get("config"))  # as 0.1.0 called it
        if not isinstance(there, Mapping):
            raise ValueError("it does not say of which run it is")
        return None if self.identity is None else difference(there, self.identity)

    def _tidy(self, newest: Path) -> None:
        """Remove all but ``newest`` and the one before it."""
        # What claims to be later was passed over when the run went on from an earlier one: it is
        # spoiled, and must not take the place of one that is not.
        found = self.newest_first()
        older = [path for path in found if _step(path) < _step(newest)]
        for path in set(found) - {newest, *older[:1]}:
            remove(path)


def _step(path: Path) -> int:
    return int(path.name.split("-")[1])


def _check_bytes(path: Path) -> None:
    """The name vouches for a file, or for the index of a directory and that for its files."""
    if f"{checksum(path / INDEX if path.is_dir() else path):08x}" != path.stem.split("-")[2]:
        raise ValueError("its bytes are not those that were written")
    if path.is_dir():
        for name, total in dict(_open(path).get("files", {})).items():
            if checksum(path / name) != total:
                raise ValueError(f"the bytes of {name} are not those that were written")
        reader_of(path).read_metadata()


def _check_layout(content: Mapping[str, Any], live: Mapping[str, Any]) -> None:
    """Everything that was written is there, and every tensor that the run has."""
    held, said = layout(content.get("state")), content.get("layout")
    wanted = {name: shape for name, shape in layout(live).items() if shape is not None}
    if held != said or any(held.get(name) != shape for name, shape in wanted.items()):
        raise ValueError("parts of it are missing, or of another shape")


def _open(path: Path) -> dict[str, Any]:
    """What is in it; the tensors of a directory have no data yet."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on the dialect of a file that is not ours
            file = regular(path / INDEX if path.is_dir() else path)
            # On the CPU whatever the device: there it would stand beside the live one.
            content = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        if isinstance(error, MemoryError) or os.strerror(errno.ENOMEM) in str(error):
            raise MemoryError(f"too little memory to read checkpoint {path}") from error
        # torch's own words go on for a page, and advise to run what is in the file.
        raise ValueError(f"it is not one of ours: {type(error).__name__}") from error
    if not isinstance(content, dict):
        raise ValueError(f"it is not one of ours: a {type(content).__name__}")
    return content
