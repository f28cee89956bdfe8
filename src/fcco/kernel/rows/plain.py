"""Rows that are the tracked values themselves."""

from collections.abc import Mapping

from torch import Tensor

from fcco.methods.coefficients import Scalar, Weights
from fcco.problem.objective import Objective
from fcco.methods.point import Point
from fcco.kernel.recursion import advance
from fcco.kernel.rows.row import Rows
from fcco.kernel.slope import slope

__all__ = ["PlainRows"]


class PlainRows(Rows):
    """A row is the value.

    Examples:
        >>> from fcco.objectives import MultiTaskAUC
        >>> PlainRows(MultiTaskAUC(2)).width
        4
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.width = objective.inner_dim

    def pack(self, values: Tensor, log_scale: Tensor | None = None) -> Tensor:
        """The values."""
        if log_scale is not None:
            raise ValueError(
                f"Probe.log_scale is for a ScaledObjective, which "
                f"{type(self.objective).__name__} is not"
            )
        return values

    def project(self, rows: Tensor, blocks: Tensor) -> Tensor:
        """``feasible``, on a copy: it may project in place."""
        return self.objective.feasible(rows.clone(), blocks)

    def outer(self, rows: Tensor, blocks: Tensor) -> Tensor:
        """``outer``."""
        return self.objective.outer(rows, blocks)

    def pull(self, rows: Tensor, fresh: Tensor, blocks: Tensor, *, supported: bool) -> Tensor:
        """The slopes."""
        closed = self.objective.outer_slope(rows, blocks)
        if closed is not None:
            return closed
        name = f"{type(self.objective).__name__}.outer"
        return slope(lambda u: self.objective.outer(u, blocks), rows, name=name)

    def advance(
        self,
        old: Tensor,
        keep: Scalar,
        weights: Weights,
        current: Tensor,
        there: Mapping[Point, Tensor],
        derivative: Tensor | None,
        anchor: Tensor | None,
    ) -> Tensor:
        """The recursion."""
        changes = {point: current - rows for point, rows in there.items()}
        if derivative is not None:
            changes[Point.PREVIOUS] = derivative
        return advance(old, keep, weights, current, changes, anchor)

    def weigh(self, rows: Tensor, weight: Tensor) -> Tensor:
        """The product."""
        return rows * weight

    def add(self, first: Tensor, second: Tensor) -> Tensor:
        """The sum."""
        return first + second
