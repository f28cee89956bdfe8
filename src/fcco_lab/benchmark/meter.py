"""Counting work, and keeping the curve of the best gap against it."""

import time
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.autograd import forward_ad

__all__ = ["GRID", "Diverged", "Meter"]

GRID = [round(10 ** (k / 15 - 1), 4) for k in range(46)]
"""Passes at which a curve is kept: from 0.1 to 100, fifteen per factor of ten."""

_SOLVED = 1e-8
"""A run ends at this gap if the optimum is known."""
_LOST = 1e3
"""A run has diverged at this gap; it starts from 1."""


class Diverged(Exception):
    """The gap grew beyond all bounds, or is not a number."""


class Meter:
    """Counts inputs through a model, and measures the gap on a grid of work.

    Work is counted at the model itself, whatever the solver does: every input that passes forward
    counts 1, every input that passes backward 2, a tangent in forward mode as one more forward
    pass. A pass is the work of one full gradient, 3 times the inputs.

    Args:
        model: the model that is counted.
        rows: inputs of a full pass.
        gap: the present gap, 1 at the start; its work and its time are not counted.
        known: whether the optimum is known, so that a run may end there.
        passes: the run ends after so many.
        seconds: the run ends after so many seconds of CPU time.
    """

    def __init__(
        self,
        model: nn.Module,
        rows: int,
        gap: Callable[[], float],
        *,
        known: bool,
        passes: float,
        seconds: float,
    ) -> None:
        self.forward = self.backward = 0
        self.limit, self.status = passes, ""
        self.gaps: list[float] = []
        self._rows, self._gap, self._known, self._seconds = rows, gap, known, seconds
        self._best, self._last, self._paused = 1.0, 0.0, 0.0
        self._begin = time.process_time()
        model.register_forward_hook(self._count)

    def _count(self, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        rows = len(output)
        dual = forward_ad.unpack_dual(output).tangent is not None
        self.forward += 2 * rows if dual else rows
        if output.requires_grad:
            output.register_hook(lambda gradient: self._count_backward(rows))

    def _count_backward(self, rows: int) -> None:
        self.backward += rows

    @property
    def passes(self) -> float:
        """Work so far, in full gradients."""
        return (self.forward + 2 * self.backward) / (3 * self._rows)

    @property
    def seconds(self) -> float:
        """CPU time so far, without the evaluations."""
        return time.process_time() - self._begin - self._paused

    def goes_on(self) -> bool:
        """Whether the run goes on; called between two steps, it evaluates the gap when it is due.

        A point of the grid shows the best gap at a step before it, never after it: the gap is
        evaluated when another step like the last one would go beyond the point.
        """
        now = self.passes
        due = now + (now - self._last)
        self._last = now
        self._keep(before=now)
        if now and len(self.gaps) < len(GRID) and GRID[len(self.gaps)] <= due:
            self._evaluate()
            self._keep(before=due)
        if self.status:
            return False
        if now >= self.limit:
            self.status = "done"
        elif self.seconds >= self._seconds:
            self.status = "time"
        return not self.status

    def _keep(self, *, before: float) -> None:
        while len(self.gaps) < len(GRID) and GRID[len(self.gaps)] <= min(before, self.limit):
            self.gaps.append(self._best)

    def _evaluate(self) -> None:
        counts, begin = (self.forward, self.backward), time.process_time()
        gap = self._gap()
        self.forward, self.backward = counts
        self._paused += time.process_time() - begin
        if not gap < _LOST:
            raise Diverged(f"gap {gap}")
        self._best = min(self._best, gap)
        if self._known and self._best < _SOLVED:
            self.status = "solved"
