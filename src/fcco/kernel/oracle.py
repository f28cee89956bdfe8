"""The oracle: the only place that moves parameters, calls closures and back-propagates."""

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
"""What a closure reported, and the derivative of its values along w_t - w_{t-1} if asked for."""


def as_closures(closures: Closures) -> tuple[Closure, ...]:
    """Return one closure or several, as a tuple.

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
    """One sample of the objective, seen at several points.

    The visit where the model stands consumes the RNG and changes the buffers like any training
    step; every other one starts from the same RNG state and the same buffers, so that dropout masks
    and BatchNorm behave alike at all points. When the ``with`` block ends, by an error or not,
    parameters, buffers and RNG are bit-identical to before; after an error ``.grad`` is empty. A
    step that is committed calls ``keep`` first: RNG and buffers are then as after the one pass
    where the model stands.

    Args:
        params: the parameters that move.
        parts: what this rank holds of them, where they are sharded.
        closures: the micro-batches.
        buffers: module buffers that a forward pass changes, or the module.
        reduction: says when gradients are averaged over ranks.
        gradients: where they add up.
        places: ``parts`` at the further points.
        factor: of all gradients (an uneven share of the blocks).

    ``value_passes`` and ``gradient_passes`` count what was done.
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
        self._after: SavedState | None = None  # of the visit where the model stands
        self._visited_home = False
        self._home: list[Tensor] | None = None  # the parameters there, while they are elsewhere
        self._kept = False
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._kept:
            # Only a second interrupt that comes before the next line is not caught.
            with defer_interrupts():
                self._return_home()
                self._before.restore()
                if kind is not None:
                    self._gradients.clear()
                    self._reduction.forget()
        self._forget_other_points()

    def keep(self) -> None:
        """Leave RNG and buffers as after the pass where the model stands."""
        # Without a later visit to another point everything is as the model's own pass left it.
        if self._after is not None:
            self._after.restore()
        self._kept = True

    def leave(self) -> None:
        """Leave RNG and buffers as they were before."""
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

        The graph lives inside the block, and what is back-propagated there is collected at its end.

        Args:
            point: where; its closures come in order.
            k: which closure.
            weight: of the gradient in the sum over points; None: only the values are wanted.
            tangent: also find the derivative of the values along w_t - w_{t-1}.
            last: whether no other point follows with a gradient.
        """
        gradients, reduction = self._gradients, self._reduction
        if k == 0:
            self._arrive(point)
            self.value_passes += 2 if tangent else 1  # a tangent costs about a forward pass
            self.gradient_passes += weight is not None
        end = k + 1 == self.num_closures
        # Gradients of low precision are widened after every closure, those kept apart after the
        # last closure of a point, and folded ones once per step: then ranks average them.
        reduce = gradients.narrow or (end and (gradients.apart or last))
        with reduction.around(last=reduce) if reduction.active else nullcontext():
            # Where gradients are kept apart, their weights come when they are combined.
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
            if self._grads() != grads:
                raise ValueError(
                    "the closure changed .grad, where a step adds up its gradients: leave out "
                    "zero_grad() and backward()"
                )
            yield probe, derivative
            if weight is not None:
                gradients.collect(point, end=end)
        if end:
            if point is Point.CURRENT:
                self._visited_home = True
            if self._home is not None:
                self._return_home()

    def backward(self, probe: Probe, slopes: Tensor, *, loss_weight: float) -> None:
        """Add ``slopes`` times the gradient of the values, and that of the weighted loss.

        Args:
            probe: the one that is shown.
            slopes: the cotangent of its values, without the weight of the point.
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
            row: of which the weights came.
        """
        return self._gradients.total(row)

    def forget(self) -> None:
        """Begin the sum of gradients anew."""
        self._gradients.clear()

    def _grads(self) -> list[tuple[int, int]]:
        """Return what tells whether ``.grad`` of some parameter was replaced or written to."""
        return [(id(p.grad), 0 if p.grad is None else p.grad._version) for p in self._params]

    def _arrive(self, point: Point) -> None:
        """Move the parameters to ``point``, with the RNG and the buffers of the first visit.

        In place and never through ``.data``: a graph still alive across the move then raises
        instead of giving wrong gradients.
        """
        if self.value_passes:
            if self._visited_home and self._after is None:
                self._after = SavedState(self._params, self._buffers)
            self._before.restore()
        if point in self._places:
            with torch.no_grad():
                self._home = list(map(torch.clone, self._parts))
                torch._foreach_copy_(self._parts, self._places[point])
        self._forget_other_points()

    def _return_home(self) -> None:
        """Move the parameters back to where the model stands, if they are elsewhere."""
        if self._home is not None:
            with torch.no_grad():
                torch._foreach_copy_(self._parts, self._home)
            self._home = None

    def _forget_other_points(self) -> None:
        """Drop what autocast, ``parametrize.cached()`` and autograd know of another point.

        Autograd does not notice that the local part of a DTensor was written to.
        """
        torch.clear_autocast_cache()
        if parametrize._cache_enabled:
            parametrize._cache = {}
        if self._sharded:
            written(self._params)
