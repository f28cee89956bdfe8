"""Rows of weights: how an observed quantity enters its recursion, and what must be seen for it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import Tensor

from fcco.methods.point import Point

__all__ = ["Scalar", "WeightRow", "Weights"]

Scalar = float | Tensor
"""A number, or a tensor that broadcasts over rows (gamma by age)."""


@dataclass(frozen=True)
class Weights:
    """What the observed quantity x enters its recursion with:

        current x(w_t) + since_previous [x(w_t) - x(w_{t-1})]
                       + since_snapshot [x(w_t) - x(w_snapshot)] + anchor X(w_snapshot)

    x is a noisy quantity (an inner value, a gradient), X its exact counterpart. Written with
    differences, a point that coincides with the current one simply drops out, and a correction
    with gamma near m/B1 does not cancel in floating point.

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
        """The weight of the change since ``point``."""
        return self.since_previous if point is Point.PREVIOUS else self.since_snapshot

    def at_points(self, further: Iterable[Point]) -> dict[Point, float]:
        """The plain coefficient of x at w_t and at the further points, for a sum over points.

        A point that is left out coincides with w_t. The weights are numbers.
        """
        weights = {Point.CURRENT: float(self.current)}
        for point in further:
            since = float(self.since(point))
            weights[Point.CURRENT] += since
            weights[point] = -since
        return weights


@dataclass(frozen=True)
class WeightRow:
    """A row of weights as a function of the coefficients, and what must be seen for it.

    Args:
        weights: (beta, gamma, m/B1) -> Weights for u, (alpha) -> Weights for z.
        points: the points besides w_t at which the row has a weight; with the snapshot the row is
            anchored, and exact passes are needed.
        corrected: gamma is the weight of the change since the previous point, so that with
            gamma = 0 the previous point need not be seen.

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
        """Raise unless the row has weights only where it declares them.

        A weight at a point that is not declared would be dropped in silence.

        Args:
            what: how an error calls the row.
            coefficients: any for which the weights do not vanish.
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
