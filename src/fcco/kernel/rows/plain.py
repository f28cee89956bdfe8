"""Rows that are the tracked values themselves."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fcco.kernel.recursion import advance
from fcco.kernel.rows.row import Rows
from fcco.methods.gain import PLACE
from fcco.methods.point import Point
from fcco.methods.weights import Scalar, Weights
from fcco.problem import Objective, Probe

__all__ = ["PlainRows"]


class PlainRows(Rows):
    """A row is the value.

    Examples:
        >>> from fcco.objectives import MultiTaskAUC
        >>> PlainRows(MultiTaskAUC([0, 1])).width
        4
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.width = objective.inner_dim

    def of(self, probe: Probe, dtype: torch.dtype, *, pair: bool = False) -> Tensor:
        """The values."""
        if probe.log_scale is not None:
            raise ValueError(
                f"Probe.log_scale is for a ScaledObjective, which "
                f"{type(self.objective).__name__} is not"
            )
        values = probe.pair if pair and probe.pair is not None else probe.values
        return values.detach().to(dtype)

    def pack(self, values: Tensor) -> Tensor:
        """The values."""
        return values

    def unpack(self, rows: Tensor) -> Tensor:
        """The rows."""
        return rows

    def project(self, rows: Tensor, blocks: Tensor) -> Tensor:
        """``feasible``, on a copy: it may project in place, and promote to its bounds' type."""
        projected = self.objective.feasible(rows.clone(), blocks)
        if projected.shape != rows.shape:
            raise ValueError(
                f"{type(self.objective).__name__}.feasible must return shape {tuple(rows.shape)}, "
                f"got {tuple(projected.shape)}"
            )
        return projected.to(rows.dtype)

    def outer(self, rows: Tensor, blocks: Tensor) -> Tensor:
        """``outer``."""
        return self.objective.outer(rows, blocks)

    def slopes(self, rows: Tensor, fresh: Tensor, blocks: Tensor, *, supported: bool) -> Tensor:
        """``outer_slope``."""
        return self.objective.outer_slope(rows, blocks)

    def advance(
        self,
        old: Tensor,
        keep: Scalar,
        weights: Weights,
        current: Tensor,
        further: Mapping[Point, Tensor],
        derivative: Tensor | None,
        anchor: Tensor | None,
    ) -> Tensor:
        """The recursion."""
        changes = {point: current - rows for point, rows in further.items()}
        if derivative is not None:
            changes[Point.PREVIOUS] = derivative
        return advance(old, keep, weights, current, changes, anchor)

    def surprise(
        self, old: Tensor, fresh: Tensor, noise: Tensor, blocks: Tensor
    ) -> tuple[Tensor, Tensor]:
        """With ``outer_slope``."""
        unit = self.objective.outer_slope(
            self.project(torch.lerp(old, fresh, PLACE), blocks), blocks
        )
        return unit * (fresh - old), unit * noise

    def logs(self, rows: Tensor) -> Tensor:
        """Of their size."""
        return rows.abs().amax(1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny).log()

    def weigh(self, rows: Tensor, weight: Tensor) -> Tensor:
        """The product."""
        return rows * weight

    def add(self, first: Tensor, second: Tensor) -> Tensor:
        """The sum."""
        return first + second
