"""A checkpoint of several ranks: a directory that any number of them can read."""

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fcco_lab.files import beside, checksum, sync, write
from fcco_lab.training.crew import Crew
from fcco_lab.training.descriptions import reader_of
from fcco_lab.training.trees import flat, mapped

__all__ = ["INDEX", "read_shards", "write_shards"]

INDEX = "index.pt"
"""Everything but the data of the tensors, and the checksums of the other files."""


def write_shards(path: Path, content: Mapping[str, Any], crew: Crew) -> Path:
    """Write ``content`` with all ranks; the tensors of its "state" go to the files as they are.

    All must call this; it is on the disk when it returns.

    Returns:
        The directory: ``path`` with the checksum of its index added to its name.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    from fcco_lab.training.pieces import InPieces  # which imports much of torch

    directory = crew.told(beside(path))
    writer = FileSystemWriter(directory, sync_files=True)
    with crew.together(), _said_nothing():
        try:
            tensors = _tensors(content["state"])
            save(tensors, storage_writer=writer, planner=InPieces(), no_dist=crew.size == 1)
        except CheckpointException as error:  # the same on every rank
            raise _reason(error) from error
    with crew.together():
        own = [*directory.glob(f"__{crew.rank}_*"), *([directory / ".metadata"] * crew.lead)]
        sums = {file.name: checksum(file) for file in own}
    files = {name: total for part in crew.gathered(sums) for name, total in part.items()}
    with crew.together():
        if crew.lead:
            index = {**content, "state": mapped(content["state"], _without_data), "files": files}
            total = checksum(write(directory / INDEX, lambda file: torch.save(index, file)))
            path = path.with_name(f"{path.name}-{total:08x}")
            os.replace(directory, path)
            sync(path.parent)
    return crew.told(path)


def read_shards(
    directory: Path, described: Mapping[str, Any], live: Mapping[str, Any], crew: Crew
) -> dict[str, Any]:
    """The state that was written, on this number of ranks; all must call this.

    Args:
        directory: of the checkpoint.
        described: the "state" of its index.
        live: a state whose tensors are overwritten, and returned in the place of new ones, where
            they are of the same size; each rank's may be a share.
        crew: the ranks that read.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict_loader import load

    with crew.together():
        have, tensors = _tensors(live), _tensors(described)
        for name, like in tensors.items():
            fits = name in have and have[name].shape == like.shape
            tensors[name] = have[name] if fits else torch.empty_like(like, device="cpu")
    with crew.together(), _said_nothing():
        try:
            load(tensors, storage_reader=reader_of(directory), no_dist=crew.size == 1)
        except CheckpointException as error:
            raise _reason(error) from error
    state: dict[str, Any] = mapped(described, tensors.get)
    return state


def _tensors(state: Any) -> dict[str, Tensor]:
    return {name: leaf for name, leaf in flat(state).items() if isinstance(leaf, Tensor)}


def _without_data(_: str, leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    return torch.empty(leaf.shape, dtype=leaf.dtype, device="meta")


@contextmanager
def _said_nothing() -> Iterator[None]:
    """Around a call by one process, of which torch warns."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is", UserWarning)
        yield


def _reason(error: Any) -> Exception:
    """What went wrong on the first rank where something did."""
    failures: dict[int, tuple[BaseException, Any]] = error.failures
    cause = failures[min(failures)][0]
    return cause if isinstance(cause, OSError) else ValueError(" ".join(str(cause).split()))
