"""The counters of an optimizer, kept in tensors so that they travel with its state."""

import torch
from torch import Tensor

__all__ = ["Progress"]


class Progress:
    """A view of the counters.

    Examples:
        >>> progress = Progress(Progress.start())
        >>> progress.step = 3
        >>> progress.step, progress.moved
        (3, False)
    """

    def __init__(self, counters: dict[str, Tensor]) -> None:
        self._counters = counters

    @staticmethod
    def start() -> dict[str, Tensor]:
        """The counters of a new optimizer.

        They have no dimension, as torch's own ``step``: its tools leave such a tensor on the host.
        """
        names = ("step", "snapshot_step", "moved", "at_snapshot", "values", "gradients")
        return {name: torch.zeros((), dtype=torch.int64) for name in names}

    @property
    def step(self) -> int:
        """Steps taken."""
        return int(self._counters["step"])

    @step.setter
    def step(self, step: int) -> None:
        self._counters["step"].fill_(step)

    @property
    def snapshot_step(self) -> int:
        """The step (from 1) at whose point the last snapshot was taken; 0: none yet."""
        return int(self._counters["snapshot_step"])

    @snapshot_step.setter
    def snapshot_step(self, step: int) -> None:
        self._counters["snapshot_step"].fill_(step)

    @property
    def moved(self) -> bool:
        """Whether the previous point is another one than the current: not at a (re)start."""
        return bool(self._counters["moved"])

    @moved.setter
    def moved(self, moved: bool) -> None:
        self._counters["moved"].fill_(moved)

    @property
    def at_snapshot(self) -> bool:
        """Whether the snapshot was taken where the model stands."""
        return bool(self._counters["at_snapshot"])

    @at_snapshot.setter
    def at_snapshot(self, at: bool) -> None:
        self._counters["at_snapshot"].fill_(at)

    @property
    def values(self) -> int:
        """Value queries, of all ranks."""
        return int(self._counters["values"])

    @property
    def gradients(self) -> int:
        """Gradient queries, of all ranks."""
        return int(self._counters["gradients"])

    def count(self, values: int, gradients: int) -> None:
        """Add queries."""
        self._counters["values"].add_(values)
        self._counters["gradients"].add_(gradients)

    def stepped(self, values: int, gradients: int) -> None:
        """Note a step away from the current point and its queries."""
        self._counters["step"].add_(1)
        self.count(values, gradients)
        if not self.moved:
            self.moved = True
        if self.at_snapshot:
            self.at_snapshot = False
