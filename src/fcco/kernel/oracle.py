"""The oracle: the only place that moves parameters, calls closures and back-propagates."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from fcco.distributed import Reduction
from fcco.distributed.sharded import locals_of, written
from fcco.kernel.gradients import GradientSum
from fcco.kernel.tangent import call_along
from fcco.kernel.writes import Writes, commit, way_back
from fcco.methods.point import Point
from fcco.methods.weights import Weights
from fcco.problem import Closure, Closures, Probe

__all__ = ["Look", "Oracle", "Pull", "Visits", "as_closures"]


@dataclass(frozen=True)
class Pull:
    """What to back-propagate from a probe: a cotangent for its values, a weight for its loss."""

    values: Tensor
    loss: float = 0.0


Look = Callable[[Point, int, Probe, Tensor | None], Pull | None]
"""Sees closure k's probe at a point (and its directional derivative, if asked for) while the graph
is alive, and says what to back-propagate."""


class Visits(Protocol):
    """What a step asks of its oracle."""

    def visit(
        self, point: Point, look: Look, *, weight: float | None, tangent: bool, last: bool
    ) -> None:
        """Show the sample of this step at ``point``, and back-propagate ``weight`` times what
        ``look`` says.

        Args:
            point: where.
            look: given the probe of each closure in turn.
            weight: in the sum of gradients; None: only the values are wanted.
            tangent: also give ``look`` the derivative of the values along w_t - w_{t-1}.
            last: whether this is the last visit with a gradient.
        """

    def gradient(self, row: Weights) -> list[Tensor]:
        """The sum over visits of weight times gradient, for every parameter.

        Args:
            row: of which the weights came.
        """


def as_closures(closures: Closures) -> tuple[Closure, ...]:
    """One closure or several, as a tuple.

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
    """One look at the objective, at several points, with one and the same sample.

    The visit where the model stands consumes the RNG and changes the buffers like any training
    step; every other one starts from the same RNG state and the same buffers (so dropout masks and
    BatchNorm behave alike at all points). When the ``with`` block ends, by an error or not,
    parameters, buffers and RNG are bit-identical to before, unless the changes that ``keep`` lists
    were made: then RNG and buffers are as after the one pass where the model stands. After an error
    ``.grad`` is empty. Changes that belong together with those of ``keep`` or ``leave`` are
    committed with them, inside the block, because the end of a block can be interrupted too.

    Args:
        params: the parameters that move.
        closures: the micro-batches.
        buffers: module buffers that a forward pass changes, or the module.
        reduction: says when gradients are averaged over ranks.
        gradients: where they add up.
        places: the parameters of the further points.
        factor: of all gradients (an uneven share of the blocks).

    ``value_passes`` and ``gradient_passes`` count what was done.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        closures: Sequence[Closure],
        buffers: Sequence[Tensor] | nn.Module,
        reduction: Reduction,
        *,
        gradients: GradientSum,
        places: Mapping[Point, Sequence[Tensor]] | None = None,
        factor: float = 1.0,
    ) -> None:
        self._params = params
        self._closures = closures
        self._buffers = buffers
        self._reduction = reduction
        self._gradients = gradients
        self.gradient = gradients.total
        self._places = places or {}
        self._factor = factor
        self.value_passes = 0
        self.gradient_passes = 0

    def __enter__(self) -> "Oracle":
        self._gradients.clear()
        self._back = way_back(self._params, self._buffers)  # to the world before; empty once kept
        self._after: Writes | None = None  # to the world after the pass where the model stands
        self._home: Writes = []  # to where the model stands
        self._been_here = False
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._back:
            try:
                commit(self._home + self._back)
            except BaseException:
                commit(self._home + self._back)  # doing it twice does no harm
                raise
            finally:
                if kind is not None:
                    self._gradients.clear()
                    self._reduction.forget()
        written(self._params)
        torch.clear_autocast_cache()
        if parametrize._cache_enabled:
            parametrize._cache = {}

    def keep(self) -> Writes:
        """Changes that leave the world as after the pass where the model stands."""
        return [*(self._after or ()), self._back.clear]

    def leave(self) -> Writes:
        """Changes that leave the world as it was before."""
        return [*self._back, self._back.clear]

    def visit(
        self,
        point: Point,
        look: Look,
        *,
        weight: float | None = 1.0,
        tangent: bool = False,
        last: bool = True,
    ) -> None:
        """See ``Visits``."""
        if self.value_passes:
            if self._after is None and self._been_here:
                self._after = way_back(self._params, self._buffers)
            commit(self._back)
        self._been_here |= point is Point.CURRENT
        self.value_passes += 2 if tangent else 1  # a tangent costs about a forward pass
        self.gradient_passes += weight is not None
        gradients, reduction = self._gradients, self._reduction
        away = point in self._places
        if away:
            self._go_to(self._places[point])
        # What autocast or parametrize.cached() kept of parameters belongs to another point.
        torch.clear_autocast_cache()
        if parametrize._cache_enabled:
            parametrize._cache = {}
        for k, closure in enumerate(self._closures):
            end = k + 1 == len(self._closures)
            reduce = gradients.narrow or (end and (gradients.apart or last))
            with reduction.around(last=reduce) if reduction.active else nullcontext():
                self._show(point, k, closure, look, weight, tangent)
                if weight is not None:
                    gradients.collect(point, end=end)
        if away:
            commit(self._home)

    def forget(self) -> None:
        """Begin the sum of gradients anew."""
        self._gradients.clear()

    def _go_to(self, place: Sequence[Tensor]) -> None:
        """Move the parameters to ``place``, and remember how to move them back.

        In place and never through ``.data``: a graph still alive across the move then raises
        instead of giving wrong gradients.
        """
        parts = locals_of(self._params)
        with torch.no_grad():
            if not self._home:
                here = list(map(torch.clone, parts))
                self._home.append(partial(torch._foreach_copy_, parts, here))
            torch._foreach_copy_(parts, locals_of(place))
        written(self._params)

    def _show(
        self,
        point: Point,
        k: int,
        closure: Closure,
        look: Look,
        weight: float | None,
        tangent: bool,
    ) -> None:
        """One closure at the point: forward, and backward at once."""
        derivative = None
        with torch.set_grad_enabled(weight is not None):
            if tangent:
                probe, derivative = call_along(closure, self._params, self._places[Point.PREVIOUS])
            else:
                probe = closure()
        if not isinstance(probe, Probe):
            raise TypeError(f"the closure must return a Probe, got {type(probe).__name__}")
        pull = look(point, k, probe, derivative)
        if pull is None or weight is None:
            return
        weight = self._factor if self._gradients.apart else weight * self._factor
        roots, seeds = [], []
        if probe.values.requires_grad:
            roots.append(probe.values)
            seeds.append((pull.values * weight).to(probe.values.dtype))
        if probe.loss is not None and probe.loss.requires_grad:
            roots.append(probe.loss)
            seeds.append(torch.full_like(probe.loss, pull.loss * weight))
        if not roots:
            raise ValueError(
                "neither Probe.values nor Probe.loss depends on a trainable parameter: was the "
                "closure run under no_grad, or were the values detached?"
            )
        torch.autograd.backward(roots, seeds)
