"""Checkpoints of a run: written under a temporary name, moved into place, the last two kept.

1. One process writes the file ``step-N.pt`` with ``torch.save``; several write the directory
   ``step-N`` with ``torch.distributed.checkpoint``.
2. When all of it is on the disk, it gets its name; then older ones are removed.
3. Loading takes the newest that can be read, and any number of processes can read either kind.

So what has the name of a checkpoint was whole when it got it. If the disk has spoiled it since,
the one before is used.
"""

import os
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fcco.distributed import Ranks
from fcco.optim.arguments import user_stacklevel
from fcco_lab.files import remove, write
from fcco_lab.training.ranks import all_reduce_max

__all__ = ["Checkpoints"]

_NAME = re.compile(r"step-(\d+)(\.pt)?")


class Checkpoints:
    """A directory of checkpoints of one run.

    Args:
        directory: made when the first is saved; all ranks must see the same one.
        device: on which ranks can exchange numbers.
    """

    def __init__(self, directory: Path, *, device: str | torch.device = "cpu") -> None:
        self.directory = directory
        self.device = device

    def save(self, state: dict[str, Any], *, step: int) -> None:
        """Write ``state``; it is on the disk, whole, when this returns, or nothing has changed."""
        path = self.directory / f"step-{step:010d}"
        try:
            if Ranks().size == 1:
                write(path.with_suffix(".pt"), lambda file: torch.save(state, file))
            else:
                _write_shards(path, state)
        except OSError as error:
            why = error.strerror or error
            raise OSError(f"cannot write a checkpoint to {self.directory}: {why}") from error
        if Ranks().rank == 0:
            # One that claims to be later is spoiled: the run went on from an earlier one.
            ours = [found for found in self.newest_first() if _step(found) <= step]
            for other in set(self.newest_first()) - set(ours[:2]):
                remove(other)

    def load(self) -> dict[str, Any] | None:
        """The state of the newest that can be read, or None; its tensors are whole, on the CPU."""
        for path in self.newest_first():
            failure = ""
            try:
                state = _read(path)
            except MemoryError:
                raise
            except Exception as error:  # torch and zipfile have many ways to say it
                failure = type(error).__name__
            if not all_reduce_max(self.device, bool(failure))[0]:
                return state
            if Ranks().rank == 0:
                warnings.warn(
                    f"checkpoint {path} cannot be read ({failure or 'on another rank'}); "
                    "going back to the one before",
                    stacklevel=user_stacklevel(),
                )
        return None

    def newest_first(self) -> list[Path]:
        """Whatever has the name of a checkpoint."""
        found = [path for path in self.directory.glob("step-*") if _NAME.fullmatch(path.name)]
        return sorted(found, key=_step, reverse=True)


def _step(path: Path) -> int:
    return int(path.name.removesuffix(".pt").split("-")[1])


def _read(path: Path) -> dict[str, Any]:
    if path.is_dir():
        return _read_shards(path)
    with zipfile.ZipFile(path) as archive:  # torch.load does not look at the checksums
        if spoiled := archive.testzip():
            raise ValueError(f"{spoiled} has another checksum")
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def _write_shards(path: Path, state: Mapping[str, Any]) -> None:
    """The tensors by name with torch's writer, and everything else in ``index.pt``."""
    from torch.distributed.checkpoint.state_dict_saver import save

    tensors: dict[str, Tensor] = {}

    def take_out(name: str, tensor: Tensor) -> Tensor:
        tensors[name] = tensor
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")

    index = _map_tensors(state, take_out)
    temporary = path.with_name(f".{path.name}.part")  # the same on all ranks
    with _plain_errors():
        save(tensors, checkpoint_id=temporary)
    if Ranks().rank == 0:
        write(temporary / "index.pt", lambda file: torch.save(index, file))
        remove(path)  # a spoiled one of the same step
        os.replace(temporary, path)


def _read_shards(path: Path) -> dict[str, Any]:
    """Whole tensors, on every rank that asks."""
    from torch.distributed.checkpoint.state_dict_loader import load

    tensors: dict[str, Tensor] = {}

    def allocate(name: str, described: Tensor) -> Tensor:
        tensors[name] = torch.empty(described.shape, dtype=described.dtype)
        return tensors[name]

    index = torch.load(path / "index.pt", weights_only=True)
    state: dict[str, Any] = _map_tensors(index, allocate)
    with warnings.catch_warnings(), _plain_errors():
        warnings.simplefilter("ignore")  # that this process loads by itself
        load(tensors, checkpoint_id=path, no_dist=True)
    return state


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Raise the error of the first rank that failed; torch wraps all in a BaseException."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except CheckpointException as error:
        cause, _ = error.failures[min(error.failures)]
        raise cause from error


def _map_tensors(tree: Any, change: Callable[[str, Tensor], Tensor], name: str = "") -> Any:
    """``tree`` of dictionaries and lists, with ``change(name, tensor)`` for every tensor in it."""
    if isinstance(tree, Mapping):
        return {key: _map_tensors(part, change, f"{name}/{key}") for key, part in tree.items()}
    if isinstance(tree, list):
        return [_map_tensors(part, change, f"{name}/{k}") for k, part in enumerate(tree)]
    return change(name, tree) if isinstance(tree, Tensor) else tree
