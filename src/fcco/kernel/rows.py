"""The format of the table's rows: the tracked value itself, or mantissas and their log-scale.

Exponentials overflow. So a ``ScaledObjective`` keeps u = exp(row[p]) * row[:p] as p mantissas and
one log-scale. An ordinary ``Objective`` keeps u itself, and its rows have no scale.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from fcco.methods.gain import SLOPE_AT
from fcco.methods.weights import Point, Scalar, Weights, advance
from fcco.problem import Objective, Probe, ScaledObjective, slope

__all__ = ["Rows", "align", "unscale"]


class Rows:
    """The operations of a step on rows; all tensors of rows have the shape (k, width).

    Args:
        objective: the problem, which determines the format of a row.

    Examples:
        >>> from fcco.objectives import MultiTaskAUC
        >>> rows = Rows(MultiTaskAUC([0, 1]))
        >>> rows.width, rows.scaled
        (4, 0)
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.width = objective.inner_dim
        self.scaled = 0
        """Number of leading columns whose log-scale is in the last column; 0 without a scale."""
        if isinstance(objective, ScaledObjective):
            self.width += 1
            self.scaled = objective.scaled_dim or objective.inner_dim

    def read(self, probe: Probe, dtype: torch.dtype, *, pair: bool = False) -> Tensor:
        """Return the rows that a probe reports, detached: its values, or its ``pair``."""
        values = probe.pair if pair and probe.pair is not None else probe.values
        values = values.detach().to(dtype)
        if self.scaled:
            scale = probe.log_scale
            return self.pack(values) if scale is None else _join(values, scale[:, None].to(dtype))
        if probe.log_scale is not None:
            raise ValueError(
                "Probe.log_scale is for a ScaledObjective, which "
                f"{type(self.objective).__name__} is not"
            )
        return values

    def pack(self, values: Tensor) -> Tensor:
        """Return rows that hold plain inner values, with the log-scale 0."""
        return _join(values, torch.zeros_like(values[:, :1])) if self.scaled else values

    def project(self, rows: Tensor, blocks: Tensor) -> Tensor:
        """Apply the objective's ``feasible`` to a copy, because it may work in place."""
        objective = self.objective
        if isinstance(objective, ScaledObjective):
            name, values = "scaled_feasible", rows[:, :-1]
            projected = objective.scaled_feasible(values.clone(), rows[:, -1], blocks)
        else:
            name, values = "feasible", rows
            projected = objective.feasible(rows.clone(), blocks)
        if projected.shape != values.shape:
            raise ValueError(
                f"{type(objective).__name__}.{name} must return shape {tuple(values.shape)}, got "
                f"{tuple(projected.shape)}"
            )
        projected = projected.to(rows.dtype)
        return _join(projected, rows[:, -1:]) if self.scaled else projected

    def outer(self, rows: Tensor, blocks: Tensor) -> Tensor:
        """Return f_i of each row, (k,)."""
        if isinstance(self.objective, ScaledObjective):
            return self.objective.scaled_outer(rows[:, :-1], rows[:, -1], blocks)
        return self.objective.outer(rows, blocks)

    def slopes(
        self, rows: Tensor, fresh: Tensor, blocks: Tensor, *, supported: bool = True
    ) -> Tensor:
        """Return the slopes of f at ``rows``, as cotangents of ``Probe.values``, (k, p).

        Args:
            rows: the rows at which slopes are taken.
            fresh: the rows that the probe reported. The slopes belong to its mantissas, so both
                are brought to one scale while the slope is computed.
            blocks: (k,), the ids of the blocks.
            supported: whether fresh values bound the rows, see ``ScaledObjective.supported``.
        """
        objective = self.objective
        if not isinstance(objective, ScaledObjective):
            return objective.outer_slope(rows.clone(), blocks)  # it may work in place, too
        (u, value), scale = align(rows, fresh, scaled=self.scaled)
        if supported:
            u = objective.supported(u, value, 1 / objective.inner_size)
        slopes = slope(objective.scaled_outer, u, scale[:, 0], blocks)
        # Chain rule: the mantissas of ``fresh`` enter f multiplied by exp(their scale - scale).
        return _rescale(slopes, fresh[:, -1:] - scale, self.scaled)

    def advance(
        self,
        old: Tensor,
        keep: Scalar,
        weights: Weights,
        fresh: Tensor,
        further: Mapping[Point, Tensor] | None = None,
        derivative: Tensor | None = None,
        anchor: Tensor | None = None,
    ) -> Tensor:
        """Compute one step of the recursion ``fcco.methods.weights.advance``.

        Args:
            old: (k, width), the rows u_{t-1}.
            keep: the factor 1 - beta of the old rows.
            weights: the method's row of weights.
            fresh: (k, width), the rows observed at w_t.
            further: the rows observed at the further points.
            derivative: (k, p), the change since the previous point as a directional derivative
                (single point), or None.
            anchor: (k, width), the exact rows at the snapshot, or None.
        """
        further = further or {}
        objective = self.objective
        if not isinstance(objective, ScaledObjective):
            changes = {}
            for point, rows in further.items():
                changes[point] = fresh - rows
            if derivative is not None:
                changes[Point.PREVIOUS] = derivative
            return advance(old, keep, weights, fresh, changes, anchor)
        parts = [old, fresh, *further.values()]
        if derivative is not None:
            parts.append(_join(derivative, fresh[:, -1:]))
        if anchor is not None:
            parts.append(anchor)
        # The recursion is linear, so it is computed on mantissas of one common scale.
        (old, current, *others), scale = align(*parts, scaled=self.scaled)
        anchor = others.pop() if anchor is not None else None
        tangent = others.pop() if derivative is not None else None
        changes = {p: current - rows for p, rows in zip(further, others, strict=True)}
        if tangent is not None:
            changes[Point.PREVIOUS] = tangent
        u = advance(old, keep, weights, current, changes, anchor)
        # u is a mean of positive terms, and the fresh terms are a part of it. So it cannot be less
        # than their share, even if a correction with a large gamma makes it so.
        least = 1 / objective.inner_size
        share = weights.current
        share = share.clamp(min=least) if isinstance(share, Tensor) else max(least, share)
        u = objective.supported(u, current, share)
        return self._recover(_level(u, scale, self.scaled), fresh, share)

    def _recover(self, rows: Tensor, fresh: Tensor, share: Scalar) -> Tensor:
        """Replace rows that vanished at the common scale by their share of the fresh value.

        A correction may cancel a row, while the fresh value underflows at the common scale. The row
        would then be 0 at a scale that is much too large. The share of the fresh value is kept at
        the scale of the fresh value.
        """
        assert isinstance(self.objective, ScaledObjective)
        least = self.objective.supported(torch.zeros_like(rows[:, :-1]), fresh[:, :-1], share)
        proven = least[:, : self.scaled] > 0
        kept = (proven & (rows[:, : self.scaled] > 0)).any(1, keepdim=True)
        least = torch.cat([least[:, : self.scaled], rows[:, self.scaled : -1]], dim=1)
        bound = _level(least, fresh[:, -1:], self.scaled)
        return torch.where(proven.any(1, keepdim=True) & ~kept, bound, rows)

    def surprise(
        self, old: Tensor, fresh: Tensor, noise: Tensor, blocks: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return how far fresh values are from the rows, and their noise, in units of f: (k, p).

        The unit is the slope of f between the two, at ``SLOPE_AT``. With the slope at the row
        alone, rows that lag by many orders of magnitude would dominate. With the slope at the fresh
        value alone, its noise would dominate.
        """
        objective = self.objective
        if not isinstance(objective, ScaledObjective):
            between = self.project(torch.lerp(old, fresh, SLOPE_AT), blocks)
            unit = objective.outer_slope(between, blocks)
            return unit * (fresh - old), unit * noise
        (u, value), scale = align(old, fresh, scaled=self.scaled)
        unit = slope(objective.scaled_outer, u.lerp(value, SLOPE_AT), scale[:, 0], blocks)
        return unit * (value - u), unit * _rescale(noise, fresh[:, -1:] - scale, self.scaled)

    def sum_surprises(
        self, old: Tensor, fresh: Tensor, noise: Tensor, blocks: Tensor, unvisited: Tensor
    ) -> Tensor:
        """Return the sums from which the gain is chosen, (3,), see ``fcco.methods.next_gain``.

        Rows that are visited for the first time, or whose noise is unknown, do not count.
        """
        both = torch.stack(self.surprise(old, fresh, noise, blocks)).double()
        squares = both.square().sum(2)
        known = squares.isfinite().all(0) & ~unvisited.squeeze(1)
        squares = squares.where(known, 0).sum(1)
        return torch.cat([known.sum().view(1), squares])

    def logs(self, rows: Tensor) -> Tensor:
        """Return the logarithm of the largest component of each row, (k, 1)."""
        values = rows[:, : self.scaled] if self.scaled else rows
        logs = values.abs().amax(1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny).log()
        return logs + rows[:, -1:] if self.scaled else logs

    def weigh(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Multiply each row by one number, (k, 1)."""
        return _join(rows[:, :-1] * weight, rows[:, -1:]) if self.scaled else rows * weight

    def add(self, first: Tensor, second: Tensor) -> Tensor:
        """Add two rows."""
        if not self.scaled:
            return first + second
        (one, other), scale = align(first, second, scaled=self.scaled)
        return _level(one + other, scale, self.scaled)


def align(*rows: Tensor, scaled: int = 1) -> tuple[list[Tensor], Tensor]:
    """Convert the mantissas of several rows to one common scale; return them and the scale (k, 1).

    The scale is the largest scale of a row that is not zero. So nothing overflows. A value that is
    negligible at this scale underflows to zero, as it would in the sum. Columns from ``scaled`` on
    have no scale and stay unchanged.

    Examples:
        >>> mantissas, scale = align(torch.tensor([[2.0, 1e4]]), torch.tensor([[3.0, 1e4]]))
        >>> [m.item() for m in mantissas], scale.item()
        ([2.0, 3.0], 10000.0)
    """
    scales = [
        row[:, -1:].where((row[:, :scaled] != 0).any(1, keepdim=True), -torch.inf) for row in rows
    ]
    scale = torch.cat(scales, dim=1).amax(1, keepdim=True)
    # If all rows are zero, any scale will do.
    scale = scale.where(scale.isfinite(), rows[0][:, -1:])
    return [_rescale(row[:, :-1], row[:, -1:] - scale, scaled) for row in rows], scale


def unscale(rows: Tensor, scaled: int) -> Tensor:
    """Return the values, with exp(scale) multiplied into the mantissas; they may overflow.

    Examples:
        >>> unscale(torch.tensor([[2.0, 0.0]]), 1)
        tensor([[2.]])
    """
    return _join(rows[:, :scaled] * rows[:, -1:].exp(), rows[:, scaled:-1])


def _join(mantissas: Tensor, scale: Tensor) -> Tensor:
    return torch.cat([mantissas, scale], dim=1)


def _rescale(u: Tensor, exponent: Tensor, scaled: int) -> Tensor:
    """Multiply the first ``scaled`` columns by exp(exponent), which is at most 0."""
    factor = exponent.clamp(max=0).exp()
    if scaled == u.shape[1]:
        return u * factor
    return torch.cat([u[:, :scaled] * factor, u[:, scaled:]], dim=1)


def _level(u: Tensor, scale: Tensor, scaled: int) -> Tensor:
    """Return rows with mantissas of the order of 1, which would otherwise drift to 0 or infinity.

    The scale changes by whole numbers, which floating point adds exactly.
    """
    peak = u[:, :scaled].abs().amax(1, keepdim=True)
    shift = peak.log().floor().clamp(-80, 80)  # so that exp(shift) fits into float32
    shift = shift.where((peak > 0) & peak.isfinite(), 0)
    # If the scale is large, scale + shift is rounded. The mantissas must change by the shift that
    # was really added, or they would no longer match their scale.
    shift = (scale + shift) - scale
    shift = shift.where(shift.abs() <= 80, 0)
    return torch.cat([u[:, :scaled] * (-shift).exp(), u[:, scaled:], scale + shift], dim=1)
