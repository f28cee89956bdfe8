"""Counting work, and keeping the curve of the best gap against it."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

__all__ = ["GRID", "Diverged", "Meter"]

GRID = [round(10 ** (k / 15 - 1), 4) for k in range(46)]
"""Passes at which a curve is kept: from 0.1 to 100, fifteen per factor of ten."""

_SOLVED = 1e-8
"""A run ends at this gap if the optimum is known."""
_LOST = 1e3
"""A run has diverged at this gap; it starts from 1."""
_PATIENCE, _FROM = 9, 24
"""A run has stalled if the gap fell by less than 1 % over so many points of the grid (a factor of 4
in work), from the point at 4 passes on."""


class Diverged(Exception):
    """The gap grew beyond all bounds, or is not a number."""


class Meter:
    """Counts inputs through a model, and measures the gap on a grid of work.

    Work is counted at the model itself, whatever the solver does: every input that passes forward
    counts 1, every input that passes backward 2, a tangent in forward mode as one more forward
    pass. A pass is the work of one full gradient, 3 times the inputs.

    Args:
        model: the model that is counted.
        params: what is learned.
        rows: inputs of a full pass.
        gap: the present gap, 1 at the start; its work and its time are not counted.
        known: whether the optimum is known, so that a run may end there.
        passes: the run ends after so many.
        seconds: the run ends after so many seconds of CPU time.
    """

    def __init__(
        self,
        model: nn.Module,
        params: Sequence[Tensor],
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
        self._params, self._rows, self._gap = params, rows, gap
        self._known, self._seconds = known, seconds
        self._best, self._paused = 1.0, 0.0
        self._previous = [p.detach().clone() for p in params]
        self._begin: float | None = None
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
        """CPU time since the first step, without the evaluations."""
        if self._begin is None:
            return 0.0
        return time.process_time() - self._begin - self._paused

    def goes_on(self) -> bool:
        """Whether the run goes on; called between two steps.

        When a step has gone beyond a point of the grid, the gap is evaluated where the weights were
        before this step: a point shows what was reached with no more than its work.
        """
        if self._begin is None:  # before it, libraries are imported and optimizers built
            self._begin = time.process_time()
        now = self.passes
        if self._next_point() < min(now, self.limit):
            self._evaluate(self._previous)
            while self._next_point() < min(now, self.limit):
                self.gaps.append(self._best)
            if len(self.gaps) > _FROM and not self.status:
                earlier = self.gaps[-_PATIENCE]
                self.status = "stalled" if earlier - self._best < 0.01 * abs(earlier) else ""
        for before, p in zip(self._previous, self._params, strict=True):
            before.copy_(p.detach())
        if not self.status and now >= self.limit:
            self.status = "done"
        elif not self.status and self.seconds >= self._seconds:
            self.status = "time"
        return not self.status

    def finish(self) -> None:
        """Evaluate where the solver ended, if that was before its budget was spent."""
        if not self.status and self._next_point() < self.limit:
            self.status = "ended"
            self._evaluate(self._previous)
            while self._next_point() < min(self.passes, self.limit):
                self.gaps.append(self._best)
            self._evaluate([p.detach().clone() for p in self._params])
            self.gaps.append(self._best)

    def _next_point(self) -> float:
        """The first point of the grid that has no gap yet."""
        return GRID[len(self.gaps)] if len(self.gaps) < len(GRID) else math.inf

    @torch.no_grad()
    def _evaluate(self, weights: Sequence[Tensor]) -> None:
        """Keep the gap at these weights, if it is the best."""
        counts, begin = (self.forward, self.backward), time.process_time()
        now = [p.detach().clone() for p in self._params]
        for p, there in zip(self._params, weights, strict=True):
            p.copy_(there)
        gap = self._gap()
        for p, there in zip(self._params, now, strict=True):
            p.copy_(there)
        self.forward, self.backward = counts
        self._paused += time.process_time() - begin
        if not gap < _LOST:
            raise Diverged(f"gap {gap}")
        self._best = min(self._best, gap)
        if self._known and self._best < _SOLVED:
            self.status = "solved"
