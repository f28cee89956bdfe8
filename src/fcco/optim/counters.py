"""The counters of an optimizer, kept in tensors so that they travel with its state."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Counters", "Position"]


class Position(NamedTuple):
    """Where a run stands."""

    step: int
    """Steps taken."""
    snapshot_step: int
    """The step (from 1) at whose point the last snapshot was taken; 0: none yet."""
    moved: bool
    """Whether the previous point is another one than the current: not at a (re)start."""
    at_snapshot: bool
    """Whether the snapshot was taken where the model stands."""


class Counters:
    """A view of the counters.

    Examples:
        >>> counters = Counters(Counters.start())
        >>> counters.stepped(values=10, gradients=5)
        >>> counters.position()
        Position(step=1, snapshot_step=0, moved=True, at_snapshot=False)
    """

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self._tensors = tensors

    @staticmethod
    def start() -> dict[str, Tensor]:
        """The counters of a new optimizer.

        They have no dimension, as torch's own ``step``: its tools leave such a tensor on the host.
        """
        names = ("step", "snapshot_step", "moved", "at_snapshot", "values", "gradients")
        return {name: torch.zeros((), dtype=torch.int64) for name in names}

    def position(self) -> Position:
        """Where the run stands."""
        t = self._tensors
        return Position(
            int(t["step"]), int(t["snapshot_step"]), bool(t["moved"]), bool(t["at_snapshot"])
        )

    def queries(self) -> tuple[int, int]:
        """Value and gradient queries so far, of all ranks."""
        return int(self._tensors["values"]), int(self._tensors["gradients"])

    def stepped(self, *, values: int, gradients: int) -> None:
        """Note a step away from the current point, and its queries."""
        self._tensors["step"].add_(1)
        self._tensors["values"].add_(values)
        self._tensors["gradients"].add_(gradients)
        self._tensors["moved"].fill_(1)
        self._tensors["at_snapshot"].fill_(0)

    def snapshot_taken(self, *, values: int, gradients: int) -> None:
        """Note a snapshot at the current point, and its queries."""
        self._tensors["values"].add_(values)
        self._tensors["gradients"].add_(gradients)
        self._tensors["snapshot_step"].copy_(self._tensors["step"] + 1)
        self._tensors["at_snapshot"].fill_(1)

    def covers(self, steps: Iterable[object]) -> bool:
        """Whether all these anchors belong to the last snapshot."""
        last = int(self._tensors["snapshot_step"])
        return all(isinstance(step, Tensor) and int(step) == last for step in steps)

    def restarted(self) -> None:
        """Note that the parameters were set to another iterate."""
        self._tensors["moved"].fill_(0)
        self._tensors["at_snapshot"].fill_(0)
