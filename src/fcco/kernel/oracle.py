"""The oracle, which is the only place that moves parameters, calls closures and back-propagates."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from operator import is_not
from types import TracebackType

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from fcco.distributed import Reduction
from fcco.distributed.sharded import written
from fcco.kernel.gradients import GradientSum
from fcco.kernel.interrupts import SavedState, defer_interrupts
from fcco.kernel.tangent import call_along
from fcco.methods.weights import Point, Weights
from fcco.problem import Closure, Closures, Probe

__all__ = ["Oracle", "Shown", "as_closures"]

Shown = tuple[Probe, Tensor | None]
"""The probe of a closure, and the derivative of its values along w_t - w_{t-1} if requested."""


def as_closures(closures: Closures) -> tuple[Closure, ...]:
    """Return one closure or several closures as a tuple.

    Examples:
        >>> len(as_closures([lambda: None, lambda: None]))
        2
    """
    if callable(closures):
        return (closures,)
    result = tuple(closures or ())
    if not result or not all(callable(closure) for closure in result):
        raise ValueError("a closure, or a non-empty sequence of closures, is needed")
    return result


class Oracle(AbstractContextManager["Oracle"]):
    """One sample of the objective, evaluated at several points.

    The pass at the current point uses the RNG and changes the buffers like any training step. Every
    other pass starts from the same RNG state and the same buffers. So dropout masks and BatchNorm
    behave alike at all points.

    When the ``with`` block ends, by an error or not, parameters, buffers and RNG are bit-identical
    to before, and after an error ``.grad`` is None. A successful step calls ``keep`` first. RNG and
    buffers are then as after the one pass at the current point.

    Args:
        params: the parameters that move.
        parts: the local parts of sharded parameters; other parameters as they are.
        closures: the micro-batches.
        buffers: the module buffers that a forward pass changes, or the module.
        reduction: the object that decides when gradients are averaged over ranks.
        gradients: the object that adds up the gradients.
        places: ``parts`` at the further points.
        factor: a factor of all gradients, for ranks with unequal shares of the blocks.

    ``value_passes`` and ``gradient_passes`` count the passes.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        parts: list[Tensor],
        closures: Sequence[Closure],
        buffers: Sequence[Tensor] | nn.Module,
        reduction: Reduction,
        *,
        gradients: GradientSum,
        places: Mapping[Point, list[Tensor]] | None = None,
        factor: float = 1.0,
    ) -> None:
        self.num_closures = len(closures)
        self._params = params
        self._parts = parts
        self._sharded = any(map(is_not, params, parts))
        self._closures = closures
        self._buffers = buffers
        self._reduction = reduction
        self._gradients = gradients
        self._places = places or {}
        self._factor = factor
        self.value_passes = 0
        self.gradient_passes = 0

    def __enter__(self) -> "Oracle":
        self._gradients.clear()
        self._before = SavedState(self._params, self._buffers)
        self._after: SavedState | None = None  # the state after the pass at the current point
        self._visited_home = False
        self._home: list[Tensor] | None = None  # the current point, while parameters are elsewhere
        self._kept = False
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._kept:
            # An interrupt that arrives before the next line takes effect is the only gap left.
            with defer_interrupts():
                self._return_home()
                self._before.restore()
                if kind is not None:
                    self._gradients.clear()
                    self._reduction.forget()
        self._forget_caches()
        if isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration):
            # The closure's iterator has ended. ``show`` is a generator, out of which Python lets
            # no StopIteration, and the caller may wait for one.
            raise error.__cause__

    def keep(self) -> None:
        """Leave RNG and buffers as they were after the pass at the current point."""
        # If no other point was visited later, everything is in that state already.
        if self._after is not None:
            self._after.restore()
        self._kept = True

    def leave(self) -> None:
        """Restore RNG and buffers to their state before the ``with`` block."""
        self._before.restore()
        self._kept = True

    @contextmanager
    def show(
        self,
        point: Point,
        k: int,
        *,
        weight: float | None = 1.0,
        tangent: bool = False,
        last: bool = True,
    ) -> Iterator[Shown]:
        """Call closure ``k`` at ``point`` with the sample of this step.

        The graph exists only inside the ``with`` block. Gradients that were back-propagated there
        are collected at its end.

        Args:
            point: the point; its closures must be called in order.
            k: the number of the closure.
            weight: the weight of the gradient in the sum over points, or None if only the values
                are needed.
            tangent: whether to compute the derivative of the values along w_t - w_{t-1} too.
            last: whether this is the last point with a gradient.
        """
        gradients, reduction = self._gradients, self._reduction
        if k == 0:
            self._arrive(point)
            self.value_passes += 2 if tangent else 1  # a tangent costs about a forward pass
            self.gradient_passes += weight is not None
        self._forget_caches()
        end = k + 1 == self.num_closures
        # Ranks average gradients as rarely as possible. Gradients of low precision are widened
        # after every closure. Those kept apart are read after the last closure of a point. Those
        # that add up in ``.grad`` are needed once per step.
        reduce = gradients.narrow or (end and (gradients.apart or last))
        with reduction.around(last=reduce) if reduction.active else nullcontext():
            # Gradients that are kept apart get their weights later, in ``combine``.
            folded = 1.0 if weight is None or gradients.apart else weight
            self._weight = folded * self._factor
            derivative = None
            grads = self._grads()
            with torch.set_grad_enabled(weight is not None):
                if tangent:
                    previous = self._places[Point.PREVIOUS]
                    probe, derivative = call_along(self._closures[k], self._params, previous)
                else:
                    probe = self._closures[k]()
            if not isinstance(probe, Probe):
                raise TypeError(f"the closure must return a Probe, got {type(probe).__name__}")
            # A closure that calls backward or zero_grad would corrupt the sum over points.
            if self._grads() != grads:
                raise ValueError(
                    "the closure changed .grad, where a step adds up its gradients: leave out "
                    "zero_grad() and backward()"
                )
            yield probe, derivative
            if weight is not None:
                if reduce and reduction.active:
                    reduction.average(self._params)
                gradients.collect(point, end=end)
        if end:
            if point is Point.CURRENT:
                self._visited_home = True
            if self._home is not None:
                self._return_home()

    def backward(self, probe: Probe, slopes: Tensor, *, loss_weight: float) -> None:
        """Add ``slopes`` times the gradient of the values, and that of the weighted loss.

        Args:
            probe: the probe that ``show`` returned.
            slopes: (B1, p), the cotangent of its values, without the weight of the point.
            loss_weight: the weight of its ordinary loss.
        """
        roots, seeds = [], []
        if probe.values.requires_grad:
            roots.append(probe.values)
            seeds.append((slopes * self._weight).to(probe.values.dtype))
        if probe.loss is not None and probe.loss.requires_grad:
            roots.append(probe.loss)
            seeds.append(torch.full_like(probe.loss, loss_weight * self._weight))
        if not roots:
            raise ValueError(
                "neither Probe.values nor Probe.loss depends on a trainable parameter: was the "
                "closure run under no_grad, or were the values detached?"
            )
        torch.autograd.backward(roots, seeds)

    def gradient(self, row: Weights) -> list[Tensor]:
        """Return the sum over points of weight times gradient, for every parameter.

        Args:
            row: the row of z, which holds the weights of the points.
        """
        return self._gradients.total(row)

    def forget(self) -> None:
        """Discard the gradients that were added up so far."""
        self._gradients.clear()

    def _grads(self) -> list[tuple[int, int]]:
        """Return numbers that change if some ``.grad`` is replaced or written to."""
        return [(id(p.grad), 0 if p.grad is None else p.grad._version) for p in self._params]

    def _arrive(self, point: Point) -> None:
        """Move the parameters to ``point``, and restore the RNG and the buffers.

        Parameters are moved in place and never through ``.data``. If a graph from another point is
        still alive, its backward pass then raises instead of giving wrong gradients.
        """
        if self.value_passes:
            # Remember what the pass at the current point left behind, before it is replayed.
            if self._visited_home and self._after is None:
                self._after = SavedState(self._params, self._buffers)
            self._before.restore()
        if point in self._places:
            with torch.no_grad():
                self._home = list(map(torch.clone, self._parts))
                torch._foreach_copy_(self._parts, self._places[point])

    def _return_home(self) -> None:
        """Move the parameters back to the current point, if they are elsewhere."""
        if self._home is not None:
            with torch.no_grad():
                torch._foreach_copy_(self._parts, self._home)
            self._home = None

    def _forget_caches(self) -> None:
        """Clear the caches of autocast and ``parametrize.cached()``.

        What they hold belongs to another point, or to the graph or the dual level of the closure
        before, which has ended. Autograd does not notice that the local part of a DTensor was
        written to, so it is told.
        """
        torch.clear_autocast_cache()
        if parametrize._cache_enabled:
            parametrize._cache = {}
        if self._sharded:
            written(self._params)
