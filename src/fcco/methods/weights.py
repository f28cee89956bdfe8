"""Rows of weights, and the linear recursion that all estimators of the paper share."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

import torch
from torch import Tensor

__all__ = ["Point", "Scalar", "WeightRow", "Weights", "advance"]

Scalar = float | Tensor
"""A number, or a tensor that broadcasts over rows (gamma by age)."""

T = TypeVar("T", Tensor, list[Tensor])
"""One tensor (rows of u), or a list with one tensor per parameter (z). For a list, weights are
numbers and ``current`` is overwritten."""


class Point(Enum):
    """A point of parameter space that a method evaluates with the sample of this step.

    Examples:
        >>> [point.value for point in Point]
        ['current', 'previous', 'snapshot']
    """

    CURRENT = "current"
    """w_t, the current parameters."""
    PREVIOUS = "previous"
    """w_{t-1}, the parameters of the step before."""
    SNAPSHOT = "snapshot"
    """The parameters of the last exact pass (version 3)."""


@dataclass(frozen=True)
class Weights:
    """The weights with which an observed quantity x enters its recursion.

        current x(w_t) + since_previous [x(w_t) - x(w_{t-1})]
                       + since_snapshot [x(w_t) - x(w_snapshot)] + anchor X(w_snapshot)

    Here x is a noisy quantity (an inner value or a gradient), and X is its exact counterpart. The
    weights apply to differences for two reasons. A point that coincides with the current one drops
    out, and a correction with gamma near m/B1 does not cancel in floating point.

    Examples:
        >>> storm = Weights(current=0.25, since_previous=0.75)
        >>> storm.at_points([Point.PREVIOUS])
        {<Point.CURRENT: 'current'>: 1.0, <Point.PREVIOUS: 'previous'>: -0.75}
    """

    current: Scalar = 0.0
    since_previous: Scalar = 0.0
    since_snapshot: Scalar = 0.0
    anchor: Scalar = 0.0

    def since(self, point: Point) -> Scalar:
        """Return the weight of the change since ``point``."""
        return self.since_previous if point is Point.PREVIOUS else self.since_snapshot

    def at_points(self, further: Iterable[Point]) -> dict[Point, float]:
        """Return the coefficients of x at w_t and at the further points, for a sum over points.

        A point that is left out coincides with w_t. The weights must be numbers.
        """
        weights = {Point.CURRENT: float(self.current)}
        for point in further:
            since = float(self.since(point))
            # since (x(w_t) - x(p)) contributes + since at w_t and - since at p.
            weights[Point.CURRENT] += since
            weights[point] = -since
        return weights


@dataclass(frozen=True)
class WeightRow:
    """A row of weights as a function of the coefficients, and the points that it needs.

    Args:
        weights: a function from (beta, gamma, m/B1) to ``Weights`` for u, or from (alpha) for z.
        points: the points besides w_t at which the row has a weight. A row with the snapshot is
            anchored, and needs exact passes.
        corrected: whether gamma is the weight of the change since the previous point. With
            gamma = 0 the previous point is then not needed.

    Examples:
        >>> WeightRow(lambda alpha: Weights(current=alpha)).points
        ()
    """

    weights: Callable[..., Weights]
    points: tuple[Point, ...] = ()
    corrected: bool = False

    def __post_init__(self) -> None:
        known = (Point.PREVIOUS, Point.SNAPSHOT)
        if not isinstance(self.points, tuple) or any(p not in known for p in self.points):
            raise ValueError(f"points must be a tuple of {known}, got {self.points!r}")
        if len(set(self.points)) < len(self.points):
            raise ValueError(f"a point is declared twice: {self.points!r}")

    @property
    def anchored(self) -> bool:
        """Whether exact passes are needed."""
        return Point.SNAPSHOT in self.points

    def check(self, what: str, *coefficients: float) -> None:
        """Raise an error if the row has a weight at a point that it does not declare.

        Such a weight would be ignored silently.

        Args:
            what: the name of the row in an error message.
            coefficients: any coefficients for which the weights do not vanish.
        """
        weights = self.weights(*coefficients)
        if not isinstance(weights, Weights):
            raise TypeError(f"{what} must return Weights, got {type(weights).__name__}")
        for point in (Point.PREVIOUS, Point.SNAPSHOT):
            if point not in self.points and weights.since(point) != 0:
                raise ValueError(
                    f"{what} has a weight since the {point.value} point, which it does not declare"
                )
        if weights.anchor != 0 and not self.anchored:
            raise ValueError(f"{what} has an anchor, but does not declare the snapshot")
        if self.corrected:
            beta, _, *further = coefficients
            if self.weights(beta, 0.0, *further).since_previous != 0:
                raise ValueError(f"{what} is corrected, but gamma is not its correction's weight")


def advance(
    state: T,
    keep: Scalar,
    weights: Weights,
    current: T,
    changes: Mapping[Point, T],
    anchor: T | None = None,
) -> T:
    """Return the next value of an estimator, u or z.

        keep state + current x(w_t) + sum_points since[point] (x(w_t) - x(point)) + anchor X

    With different weights these are ``MSVR``, ``MSVR-SP`` and ``MSVR_SVRG`` for u, and
    ``momentum``, ``eqn:z`` and ``eqn:z+`` for z.

    Args:
        state: the estimate of the step before, u_{t-1} or z_{t-1}.
        keep: the factor of the state, 1 - beta for u and 1 - alpha for z.
        weights: the method's row of weights.
        current: the observation at w_t. A list is overwritten.
        changes: x(w_t) - x(point) for each further point. The single-point variant passes the
            directional derivative instead.
        anchor: the exact quantity at the snapshot, or None.

    Every argument may have leading batch dimensions.

    Examples:
        >>> u, g, old = torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([1.5])
        >>> row = Weights(current=0.5, since_previous=0.5)
        >>> advance(u, 0.5, row, g, {Point.PREVIOUS: g - old})
        tensor([1.7500])
        >>> advance([u], 0.5, row, [g], {Point.PREVIOUS: [g - old]})
        [tensor([1.7500])]
    """
    result: T
    if isinstance(current, list):  # reuse the memory of ``current``, because allocation is slow
        torch._foreach_mul_(current, float(weights.current))
        result = _plus(current, keep, state)
    else:
        result = _plus(keep * state, weights.current, current)
    for point, change in changes.items():
        result = _plus(result, weights.since(point), change)
    return result if anchor is None else _plus(result, weights.anchor, anchor)


def _plus(total: T, weight: Scalar, term: T) -> T:
    """Return total + weight term in one operation; a list ``total`` is overwritten."""
    if isinstance(total, list):
        torch._foreach_add_(total, term, alpha=float(weight))
        return total
    if isinstance(weight, Tensor):
        return torch.addcmul(total, weight, term)
    return torch.add(total, term, alpha=weight)
