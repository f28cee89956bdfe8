"""Rows of mantissas followed by their log-scale, for values that overflow."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fcco.kernel.recursion import advance
from fcco.kernel.rows.row import Rows
from fcco.methods.gain import PLACE
from fcco.methods.point import Point
from fcco.methods.weights import Scalar, Weights
from fcco.problem import Probe, ScaledObjective, slope

__all__ = ["ScaledRows", "aligned", "unscaled"]


class ScaledRows(Rows):
    """A row is p mantissas and one log-scale: u = exp(row[p]) * row[:p].

    The scale moves by whole numbers, which floating point adds exactly.

    Examples:
        >>> rows = torch.tensor([[1.0, 500.0]]), torch.tensor([[1.0, 501.0]])
        >>> (one, other), scale = aligned(*rows)
        >>> scale.item(), other.item()
        (501.0, 1.0)
    """

    objective: ScaledObjective

    def __init__(self, objective: ScaledObjective) -> None:
        self.objective = objective
        self.width = objective.inner_dim + 1
        self.scaled = objective.scaled_dim or objective.inner_dim

    def of(self, probe: Probe, dtype: torch.dtype, *, pair: bool = False) -> Tensor:
        """Mantissas and scale; without one, plain values at scale 0."""
        values = probe.pair if pair and probe.pair is not None else probe.values
        rows, scale = self.pack(values.detach().to(dtype)), probe.log_scale
        return rows if scale is None else _joined(rows[:, :-1], scale.to(dtype).unsqueeze(1))

    def pack(self, values: Tensor) -> Tensor:
        """At scale 0."""
        return _joined(values, torch.zeros_like(values[:, :1]))

    def unpack(self, rows: Tensor) -> Tensor:
        """exp(scale) times the mantissas."""
        return unscaled(rows, self.scaled)

    def project(self, rows: Tensor, blocks: Tensor) -> Tensor:
        """``scaled_feasible``."""
        mantissas, scale = rows[:, :-1].clone(), rows[:, -1]
        projected = self.objective.scaled_feasible(mantissas, scale, blocks)
        if projected.shape != mantissas.shape:
            raise ValueError(
                f"{type(self.objective).__name__}.scaled_feasible must return shape "
                f"{tuple(mantissas.shape)}, got {tuple(projected.shape)}"
            )
        return _joined(projected.to(rows.dtype), rows[:, -1:])

    def outer(self, rows: Tensor, blocks: Tensor) -> Tensor:
        """``scaled_outer``."""
        return self.objective.scaled_outer(rows[:, :-1], rows[:, -1], blocks)

    def slopes(self, rows: Tensor, fresh: Tensor, blocks: Tensor, *, supported: bool) -> Tensor:
        """d f / d mantissa of the fresh value: both are at one scale while the slope is taken."""
        (u, value), scale = aligned(rows, fresh, scaled=self.scaled)
        if supported:
            u = self.objective.supported(u, value, 1 / self.objective.inner_size)
        slopes = slope(self.objective.scaled_outer, u, scale[:, 0], blocks)
        return _rescaled(slopes, fresh[:, -1:] - scale, self.scaled)

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
        """The recursion on mantissas of one scale."""
        fresh, parts = current, [old, current, *further.values()]
        if derivative is not None:
            parts.append(_joined(derivative, current[:, -1:]))
        if anchor is not None:
            parts.append(anchor)
        (old, current, *others), scale = aligned(*parts, scaled=self.scaled)
        anchor = others.pop() if anchor is not None else None
        slant = others.pop() if derivative is not None else None
        changes = {p: current - rows for p, rows in zip(further, others, strict=True)}
        if slant is not None:
            changes[Point.PREVIOUS] = slant
        u = advance(old, keep, weights, current, changes, anchor)
        fraction = weights.current
        least = 1 / self.objective.inner_size
        fraction = (
            fraction.clamp(min=least) if isinstance(fraction, Tensor) else max(least, fraction)
        )
        u = self.objective.supported(u, current, fraction)
        return self._recovered(_leveled(u, scale, self.scaled), fresh, fraction)

    def _recovered(self, rows: Tensor, fresh: Tensor, fraction: Scalar) -> Tensor:
        """Give rows lost at the common scale their fraction of the fresh value, at its own scale.

        A correction may wipe out a row while the fresh value is too small for the common scale;
        left there, the row would be held for far more than it is.
        """
        least = self.objective.supported(torch.zeros_like(rows[:, :-1]), fresh[:, :-1], fraction)
        proven = least[:, : self.scaled] > 0
        kept = (proven & (rows[:, : self.scaled] > 0)).any(1, keepdim=True)
        least = torch.cat([least[:, : self.scaled], rows[:, self.scaled : -1]], dim=1)
        bound = _leveled(least, fresh[:, -1:], self.scaled)
        return torch.where(proven.any(1, keepdim=True) & ~kept, bound, rows)

    def surprise(
        self, old: Tensor, fresh: Tensor, noise: Tensor, blocks: Tensor
    ) -> tuple[Tensor, Tensor]:
        """At the common scale."""
        (u, value), scale = aligned(old, fresh, scaled=self.scaled)
        unit = slope(self.objective.scaled_outer, u.lerp(value, PLACE), scale[:, 0], blocks)
        return unit * (value - u), unit * _rescaled(noise, fresh[:, -1:] - scale, self.scaled)

    def logs(self, rows: Tensor) -> Tensor:
        """With their scale."""
        peak = rows[:, : self.scaled].abs().amax(1, keepdim=True)
        return peak.clamp(min=torch.finfo(rows.dtype).tiny).log() + rows[:, -1:]

    def weigh(self, rows: Tensor, weight: Tensor) -> Tensor:
        """The product, at the same scale."""
        return _joined(rows[:, :-1] * weight, rows[:, -1:])

    def add(self, first: Tensor, second: Tensor) -> Tensor:
        """The sum, at the common scale."""
        (one, other), scale = aligned(first, second, scaled=self.scaled)
        return _leveled(one + other, scale, self.scaled)


def aligned(*rows: Tensor, scaled: int = 1) -> tuple[list[Tensor], Tensor]:
    """The mantissas of several rows at one common scale, and that scale, (k, 1).

    The scale is the largest among those whose row is not zero: nothing overflows, and a value that
    vanishes beside it underflows to zero, as it does in the sum. Columns from ``scaled`` on are
    plain.

    Examples:
        >>> mantissas, scale = aligned(torch.tensor([[2.0, 1e4]]), torch.tensor([[3.0, 1e4]]))
        >>> [m.item() for m in mantissas], scale.item()
        ([2.0, 3.0], 10000.0)
    """
    scales = [
        row[:, -1:].where((row[:, :scaled] != 0).any(1, keepdim=True), -torch.inf) for row in rows
    ]
    scale = torch.cat(scales, dim=1).amax(1, keepdim=True)
    scale = scale.where(scale.isfinite(), rows[0][:, -1:])
    return [_rescaled(row[:, :-1], row[:, -1:] - scale, scaled) for row in rows], scale


def unscaled(rows: Tensor, scaled: int) -> Tensor:
    """The values themselves, exp(scale) times the first ``scaled`` mantissas; they may overflow.

    Examples:
        >>> unscaled(torch.tensor([[2.0, 0.0]]), 1)
        tensor([[2.]])
    """
    return _joined(rows[:, :scaled] * rows[:, -1:].exp(), rows[:, scaled:-1])


def _joined(mantissas: Tensor, scale: Tensor) -> Tensor:
    return torch.cat([mantissas, scale], dim=1)


def _rescaled(u: Tensor, exponent: Tensor, scaled: int) -> Tensor:
    """The first ``scaled`` columns times exp(exponent), which is at most 0."""
    factor = exponent.clamp(max=0).exp()
    if scaled == u.shape[1]:
        return u * factor
    return torch.cat([u[:, :scaled] * factor, u[:, scaled:]], dim=1)


def _leveled(u: Tensor, scale: Tensor, scaled: int) -> Tensor:
    """A row whose mantissas are of the order of 1: long runs would else drift to 0 or infinity."""
    peak = u[:, :scaled].abs().amax(1, keepdim=True)
    shift = peak.log().floor().clamp(-80, 80)  # exp of it is a float32
    shift = shift.where((peak > 0) & peak.isfinite(), 0)
    # The sum rounds where the scale is large. The mantissas move by what was really added, or
    # they would no longer belong to their scale.
    shift = (scale + shift) - scale
    shift = shift.where(shift.abs() <= 80, 0)
    return torch.cat([u[:, :scaled] * (-shift).exp(), u[:, scaled:], scale + shift], dim=1)
