"""The counters of an optimizer, kept in tensors so that they travel with its state."""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from fcco.kernel.writes import Writes

__all__ = ["Counters", "Position"]


class Position(NamedTuple):
    """Where a run stands."""

    step: int = 0
    """Steps taken."""
    snapshot_step: int = 0
    """The step (from 1) at whose point the last snapshot was taken; 0: none yet."""
    moved: bool = False
    """Whether the previous point is another one than the current: not at a (re)start."""
    at_snapshot: bool = False
    """Whether the snapshot was taken where the model stands."""
    values: int = 0
    """Value queries so far, of all ranks."""
    gradients: int = 0
    """Gradient queries so far, of all ranks."""


class Counters:
    """A position in tensors.

    Examples:
        >>> from fcco.kernel.writes import commit
        >>> counters = Counters(Counters.start())
        >>> commit(counters.put(Position(step=1, moved=True)))
        >>> counters.position().step
        1
    """

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self._tensors = tensors

    @staticmethod
    def start() -> dict[str, Tensor]:
        """The counters of a new optimizer.

        They have no dimension, as torch's own ``step``: its tools leave such a tensor on the host.
        """
        return {name: torch.zeros((), dtype=torch.int64) for name in Position._fields}

    def position(self) -> Position:
        """Where the run stands."""
        t = self._tensors
        return Position(
            int(t["step"]),
            int(t["snapshot_step"]),
            bool(t["moved"]),
            bool(t["at_snapshot"]),
            int(t["values"]),
            int(t["gradients"]),
        )

    def put(self, position: Position) -> Writes:
        """Changes that set the counters to ``position``."""
        writes: Writes = []
        for name, number in zip(position._fields, position, strict=True):
            writes.append(partial(self._tensors[name].fill_, number))
        return writes

    def covers(self, steps: Iterable[object]) -> bool:
        """Whether all these anchors belong to the last snapshot."""
        last = int(self._tensors["snapshot_step"])
        return all(isinstance(step, Tensor) and int(step) == last for step in steps)
