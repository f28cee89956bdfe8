"""The definition of a method: two rows of weights, and where slopes are taken."""

from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from fcco.methods.weights import Point, WeightRow

__all__ = ["Method", "SlopeAt"]


class SlopeAt(Enum):
    """The row at which the slope of f_i is taken.

    Examples:
        >>> SlopeAt.TABLE.value
        'table'
    """

    TABLE = "table"
    """The table before the point's own step: u_{t-1} at w_t, u_{t-2} at w_{t-1}, and at the
    snapshot the rows of that time. They are independent of this step's sample, as in the paper."""
    UPDATED = "updated"
    """The table as this step's sample updates it at the point, which is u_t at w_t. It is not
    independent of the sample, but never stale."""
    COMMON = "common"
    """u_{t-1} for all points, so that G(w_t) - G(w_{t-1}) depends only on the change of w."""
    VALUE = "value"
    """The fresh value itself (BSGD), which is biased."""
    PAIR = "pair"
    """The value of an independent sample (fresh pair), unbiased if the slope is affine."""


@dataclass(frozen=True)
class Method:
    """The description of a method.

    Args:
        name: the name on the command line and in messages.
        gradient: the row of weights for z.
        inner: the row of weights for u, or None for a method without a table.
        slope_at: where slopes are taken.
        single_point: whether the change since the previous point is a directional derivative.
        shrinks: whether every row of u, probed or not, shrinks by 1 - beta in each step.

    Examples:
        >>> from fcco.methods import MSVRM_V2
        >>> [point.value for point in MSVRM_V2.points]
        ['previous']
    """

    name: str
    gradient: WeightRow
    inner: WeightRow | None = None
    slope_at: SlopeAt = SlopeAt.TABLE
    single_point: bool = False
    shrinks: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.slope_at, SlopeAt):
            raise TypeError(f"{self.name}: slope_at must be a SlopeAt, got {self.slope_at!r}")
        own = self.slope_at in (SlopeAt.VALUE, SlopeAt.PAIR)
        if own != (self.inner is None):
            raise ValueError(
                f"{self.name}: slopes are taken at the table if there is a row of u (inner), else "
                "at the value or at the pair"
            )
        if self.single_point and not self.corrected:
            raise ValueError(f"{self.name}: single_point needs a corrected row of u")
        if self.inner is not None and self.inner.anchored and not self.gradient.anchored:
            raise ValueError(f"{self.name}: u is anchored, so z must be")
        # Any coefficients for which no weight vanishes by accident will do.
        self.gradient.check(f"{self.name}: the row of z", 0.3)
        if self.inner is not None:
            self.inner.check(f"{self.name}: the row of u", 0.3, 0.7, 4.0)
        if self.slope_at is SlopeAt.UPDATED and not self._updatable:
            raise ValueError(f"{self.name} cannot take its slopes at u_t")

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """The points besides w_t whose parameters must be stored."""
        seen = self.gradient.points + (self.inner.points if self.inner else ())
        return tuple(point for point in Point if point in seen)

    @cached_property
    def generations(self) -> tuple[Point, ...]:
        """The points besides w_t whose slopes are taken at an older generation of the table."""
        return self.gradient.points if self.slope_at is SlopeAt.TABLE and self.inner else ()

    @cached_property
    def corrected(self) -> bool:
        """Whether gamma has an effect."""
        return self.inner is not None and self.inner.corrected

    @cached_property
    def anchored(self) -> bool:
        """Whether exact passes are needed."""
        return self.gradient.anchored

    @cached_property
    def needs_pair(self) -> bool:
        """Whether a closure must report ``Probe.pair``, values of an independent sample."""
        return self.slope_at is SlopeAt.PAIR

    @cached_property
    def value_cost(self) -> int:
        """The number of inner values that a sample costs in an ordinary step.

        A directional derivative costs about as much as a value, and a pair is two values.
        """
        # A single-point method evaluates values where it needs gradients, plus one derivative.
        visits = 1 + len(self.gradient.points if self.single_point else self.points)
        return (visits + self.single_point) * (2 if self.needs_pair else 1)

    @cached_property
    def gradient_cost(self) -> int:
        """The number of inner gradients that a sample costs in an ordinary step."""
        return 1 + len(self.gradient.points)

    def updated(self) -> "Method":
        """Return the same method with slopes at u_t instead of u_{t-1}, as in published code.

        If a block is sampled once in hundreds of steps, u_{t-1} comes from a model of long ago,
        while u_t contains a share beta of the current one. In version 2, the slope at w_{t-1} is
        taken at the row as the same sample would have updated it there, which is
        (1 - beta) u_{t-1} + beta g(w_{t-1}; xi). So G(w_t) - G(w_{t-1}) vanishes if w does not
        change, and contains no jump of the table.

        Examples:
            >>> from fcco.methods import SOX
            >>> SOX.updated().name
            'sox-updated'
        """
        if self.slope_at is not SlopeAt.TABLE or not self._updatable:
            raise ValueError(f"{self.name} has no variant with updated slopes")
        return replace(self, name=f"{self.name}-updated", slope_at=SlopeAt.UPDATED)

    @property
    def _updatable(self) -> bool:
        """Whether u_t is known when the slopes at w_t are taken, closure by closure.

        The row of u must not depend on m/B1, which is known only after the last closure. And an
        anchored method must have no further point besides the snapshot.
        """
        if self.inner is None or self.single_point or self.shrinks:
            return False
        if self.anchored and self.points != (Point.SNAPSHOT,):
            return False
        # Different values of m/B1 give the same weights only if the row does not depend on it.
        return self.inner.weights(0.3, 0.7, 4.0) == self.inner.weights(0.3, 0.7, 2.0)

    def with_one_slope(self) -> "Method":
        """Return the same method with slopes at u_{t-1} both at w_t and at w_{t-1} (version 2).

        Examples:
            >>> from fcco.methods import MSVRM_V2
            >>> MSVRM_V2.with_one_slope().name
            'msvrm-v2-one-slope'
        """
        if self.generations != (Point.PREVIOUS,) or self.shrinks:
            raise ValueError(f"{self.name} has no variant with one slope: version 2 has")
        return replace(self, name=f"{self.name}-one-slope", slope_at=SlopeAt.COMMON)
