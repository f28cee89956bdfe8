"""A checkpoint of several ranks: a directory that any number of them can read."""

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from fcco_lab.training.crew import Crew
from fcco_lab.training.descriptions import reader_of
from fcco_lab.training.files import checksum, write_text

__all__ = ["check_shards", "read_shards", "write_shards"]

INDEX = "state.json"
"""What is not a tensor, the names of those that are, and the checksums of the other files."""

Branch = tuple[str | int | tuple[int], ...]
"""The way to a leaf: keys of nested dictionaries, (k,) for entry k of a list with tensors."""


def write_shards(directory: Path, state: dict[str, Any], crew: Crew) -> None:
    """Write ``state`` with all ranks; its tensors go to the files as they are.

    All must call this; it is on the disk when it returns.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    from fcco_lab.training.pieces import InPieces  # which imports much of torch

    leaves = dict(_leaves(state))
    tensors = {_name(b): leaf for b, leaf in leaves.items() if isinstance(leaf, Tensor)}
    writer = FileSystemWriter(directory, sync_files=True)
    with crew.together(), _said_nothing():
        try:
            save(tensors, storage_writer=writer, planner=InPieces(), no_dist=crew.size == 1)
        except CheckpointException as error:  # the same on every rank
            raise _reason(error) from error
    with crew.together():
        own = [*directory.glob(f"__{crew.rank}_*"), *([directory / ".metadata"] * crew.lead)]
        sums = {path.name: checksum(path) for path in own}
    files = {name: total for part in crew.gathered(sums) for name, total in part.items()}
    with crew.together():
        if crew.lead:
            index = {
                "tensors": [b for b, leaf in leaves.items() if isinstance(leaf, Tensor)],
                "plain": [[b, leaf] for b, leaf in leaves.items() if not isinstance(leaf, Tensor)],
                "files": files,
            }
            write_text(directory / INDEX, json.dumps(index) + "\n")


def check_shards(directory: Path) -> None:
    """Raise a ``ValueError`` unless everything is as it was written, or an ``OSError``.

    The name of the directory vouches for the index, and the index for the other files.
    """
    if not directory.name.endswith(f"-{checksum(directory / INDEX):08x}"):
        raise ValueError("its index is not the one that was written")
    try:
        files = json.loads((directory / INDEX).read_text())["files"]
        spoiled = [name for name, total in files.items() if checksum(directory / name) != total]
    except (TypeError, KeyError, AttributeError, UnicodeDecodeError) as error:
        raise ValueError(f"it is not one of ours: {type(error).__name__}") from error
    if spoiled:
        raise ValueError(f"the bytes of {spoiled[0]} are not those that were written")
    reader_of(directory).read_metadata()


def read_shards(directory: Path, live: Mapping[str, Any], crew: Crew) -> dict[str, Any]:
    """The state that was written, on this number of ranks; all must call this.

    Args:
        directory: that ``check_shards`` found right.
        live: a state of which tensors are overwritten, and returned in the place of new ones,
            where they are of the same size; each rank's may be a share.
        crew: the ranks that read.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict_loader import load

    tensors: dict[str, Any] = {}
    with crew.together():
        index = json.loads((directory / INDEX).read_text())
        reader, have = reader_of(directory), dict(_leaves(live))
        described = reader.read_metadata().state_dict_metadata
        for branch in map(_branch, index["tensors"]):
            name, there = _name(branch), have.get(branch)
            wanted = cast(Any, described[name])
            if not isinstance(there, Tensor) or there.shape != wanted.size:
                there = torch.empty(wanted.size, dtype=wanted.properties.dtype)
            tensors[name] = there
    with crew.together(), _said_nothing():
        try:
            load(tensors, storage_reader=reader, no_dist=crew.size == 1)
        except CheckpointException as error:
            raise _reason(error) from error
    state: dict[str, Any] = {}
    for branch in map(_branch, index["tensors"]):
        _put(state, branch, tensors[_name(branch)])
    for branch, leaf in index["plain"]:
        _put(state, _branch(branch), leaf)
    return cast(dict[str, Any], _with_lists(state))


@contextmanager
def _said_nothing() -> Iterator[None]:
    """Of one process, which is told that it is one."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is", UserWarning)
        yield


def _leaves(tree: Mapping[Any, Any], branch: Branch = ()) -> Iterator[tuple[Branch, Any]]:
    for key, value in tree.items():
        if isinstance(value, list):
            entries = {(k,): entry for k, entry in enumerate(value)}
            if any(isinstance(leaf, Tensor) for _, leaf in _leaves(entries)):
                value = entries
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*branch, key))
        else:
            yield (*branch, key), value


def _branch(read: list[Any]) -> Branch:
    """As JSON has it, which knows no tuples."""
    return tuple(tuple(key) if isinstance(key, list) else key for key in read)


def _put(tree: dict[Any, Any], branch: Branch, leaf: Any) -> None:
    *way, last = branch
    for key in way:
        tree = tree.setdefault(key, {})
    tree[last] = leaf


def _with_lists(tree: Any) -> Any:
    """``tree``, with lists where they were."""
    if not isinstance(tree, dict):
        return tree
    made = {key: _with_lists(value) for key, value in tree.items()}
    listed = any(isinstance(key, tuple) for key in made)
    return [made[key] for key in sorted(made)] if listed else made


def _name(branch: Branch) -> str:
    return "/".join(str(key[0] if isinstance(key, tuple) else key) for key in branch)


def _reason(error: Any) -> Exception:
    """What went wrong on the first rank where something did."""
    failures: dict[int, tuple[BaseException, Any]] = error.failures
    cause = failures[min(failures)][0]
    return cause if isinstance(cause, OSError) else ValueError(" ".join(str(cause).split()))
