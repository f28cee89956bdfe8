"""What a method is: two rows of weights and where its slopes are taken."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from fcco.methods.coefficients import Scalar, Weights
from fcco.methods.point import Point

__all__ = ["GradientRow", "InnerRow", "Method", "SlopeAt"]

InnerRow = Callable[[Scalar, Scalar, float], Weights]
"""(beta, gamma, m/B1) -> the weights of the recursion of u."""

GradientRow = Callable[[Scalar], Weights]
"""alpha -> the weights of the recursion of z."""


class SlopeAt(Enum):
    """Where the slope of f_i is taken.

    Examples:
        >>> SlopeAt.TABLE.value
        'table'
    """

    TABLE = "table"
    """At the tracked u, one step old: independent of this step's sample."""
    UPDATED = "updated"
    """At the tracked u with this step's sample in it: not independent, but never stale."""
    VALUE = "value"
    """At the fresh value itself (BSGD): biased."""
    PAIR = "pair"
    """At the value of an independent sample (fresh pair): unbiased when the slope is affine."""


@dataclass(frozen=True)
class Method:
    """A method as data. The points it evaluates are read off its non-zero weights.

    Args:
        name: what it is called on the command line and in messages.
        gradient: the row of z.
        inner: the row of u, or None for a method without a table.
        slope_at: where slopes are taken.
        single_point: the change since the previous point is a directional derivative.
        shrinks: every row of u, probed or not, shrinks by 1 - beta in each step.

    Examples:
        >>> from fcco.methods import MSVRM_V2
        >>> sorted(point.value for point in MSVRM_V2.reach())
        ['previous']
    """

    name: str
    gradient: GradientRow
    inner: InnerRow | None = None
    slope_at: SlopeAt = SlopeAt.TABLE
    single_point: bool = False
    shrinks: bool = False

    def reach(self) -> set[Point]:
        """The points besides the current one whose parameters must be kept."""
        inner = self.inner(0.5, 0.5, 1.0).points() if self.inner else set()
        return inner | self.gradient(0.5).points()

    def recalls(self, point: Point) -> bool:
        """Whether slopes are read from the generation of the table that belongs to ``point``."""
        return self.slope_at is SlopeAt.TABLE and point in self.gradient(0.5).points()

    def updated(self) -> "Method":
        """The same method with slopes at u_t instead of u_{t-1}: practice's order.

        Where a block is met once in hundreds of steps, u_{t-1} belongs to a model long gone; u_t
        holds a share beta of today's.

        Examples:
            >>> from fcco.methods import SOX
            >>> SOX.updated().name
            'sox-updated'
        """
        if self.anchored or self.single_point or self.shrinks or self.slope_at is not SlopeAt.TABLE:
            raise ValueError(f"{self.name} has no variant with updated slopes")
        return replace(self, name=f"{self.name}-updated", slope_at=SlopeAt.UPDATED)

    @property
    def anchored(self) -> bool:
        """Whether exact passes are needed."""
        return bool(self.gradient(0.5).anchor != 0)
