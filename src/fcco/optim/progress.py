"""The counters of an optimizer, kept in a tensor so that they travel with its state."""

import torch
from torch import Tensor

__all__ = ["Progress"]


class Progress:
    """A view of the counters tensor.

    Examples:
        >>> progress = Progress(Progress.start())
        >>> progress.step = 3
        >>> progress.step, progress.moved
        (3, False)
    """

    def __init__(self, counters: Tensor) -> None:
        self._counters = counters

    @staticmethod
    def start() -> Tensor:
        """The counters of a new optimizer."""
        return torch.zeros(6, dtype=torch.int64)

    @property
    def step(self) -> int:
        """Steps taken."""
        return int(self._counters[0])

    @step.setter
    def step(self, step: int) -> None:
        self._counters[0] = step

    @property
    def snapshot_step(self) -> int:
        """The step (from 1) at whose point the last snapshot was taken; 0: none yet."""
        return int(self._counters[1])

    @snapshot_step.setter
    def snapshot_step(self, step: int) -> None:
        self._counters[1] = step

    @property
    def moved(self) -> bool:
        """Whether the previous point is another one than the current: not at a (re)start."""
        return bool(self._counters[2])

    @moved.setter
    def moved(self, moved: bool) -> None:
        self._counters[2] = moved

    @property
    def at_snapshot(self) -> bool:
        """Whether the snapshot was taken where the model stands."""
        return bool(self._counters[5])

    @at_snapshot.setter
    def at_snapshot(self, at: bool) -> None:
        self._counters[5] = at

    @property
    def values(self) -> int:
        """Value queries."""
        return int(self._counters[3])

    @property
    def gradients(self) -> int:
        """Gradient queries."""
        return int(self._counters[4])

    def count(self, values: int, gradients: int) -> None:
        """Add queries."""
        self._counters[3] += values
        self._counters[4] += gradients

    def stepped(self, values: int, gradients: int) -> None:
        """Note a step away from the current point and its queries; all counters in one write."""
        step, snapshot_step, _, *counts, _ = self._counters.tolist()
        queries = counts[0] + values, counts[1] + gradients
        self._counters.copy_(torch.tensor([step + 1, snapshot_step, True, *queries, False]))
