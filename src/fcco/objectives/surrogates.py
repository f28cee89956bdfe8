"""Surrogates of the step function 1[s > 0], as parts of an objective; all non-decreasing."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from fcco.objectives.sums import by_pairs, interpolated, tails

__all__ = [
    "Exponential",
    "Logistic",
    "Sigmoid",
    "Squared",
    "SquaredHinge",
    "Surrogate",
    "exp_then_linear",
    "precise_softplus",
]

_LOG_2 = math.log(2)


class Surrogate(ABC):
    """l(s), where s is the score that should be low minus the score that should be high."""

    zero_below: float = -math.inf
    """l(s) = 0 for all s up to here."""

    @abstractmethod
    def __call__(self, s: Tensor) -> Tensor:
        """l of every entry."""

    def sums(self, partners: Tensor, anchors: Tensor) -> Tensor:
        """sum_j l(partners_j - a) for each a of ``anchors``, in float64; by default pair by pair.

        Define it beside ``__call__``, in the same class, where there is a faster way.

        Examples:
            >>> SquaredHinge().sums(torch.tensor([0.0, 2.0]), torch.tensor([2.0]))
            tensor([1.], dtype=torch.float64)
        """
        return by_pairs(self, partners, anchors)

    @property
    def at_zero(self) -> float:
        """l(0), the cost of two equal scores.

        Examples:
            >>> SquaredHinge(margin=2.0).at_zero
            4.0
        """
        return float(self(torch.zeros((), dtype=torch.float64)))


@dataclass(frozen=True)
class SquaredHinge(Surrogate):
    """max(margin + s, 0)^2.

    Examples:
        >>> SquaredHinge()(torch.tensor([-2.0, 1.0]))
        tensor([0., 4.])
    """

    margin: float = 1.0

    def __call__(self, s: Tensor) -> Tensor:
        """l of every entry."""
        return (self.margin + s).clamp(min=0).square()

    @property
    def zero_below(self) -> float:  # type: ignore[override]
        """Up to -margin."""
        return -self.margin

    def sums(self, partners: Tensor, anchors: Tensor) -> Tensor:
        """By sorting: only the partners above anchor - margin count."""
        return tails(partners).above(anchors.double() - self.margin)[2]


@dataclass(frozen=True)
class Squared(Surrogate):
    """(margin + s)^2: its slope is affine, as the fresh pair needs; non-decreasing above -margin.

    Examples:
        >>> Squared()(torch.tensor([-1.0, 1.0]))
        tensor([0., 4.])
    """

    margin: float = 1.0

    def __call__(self, s: Tensor) -> Tensor:
        """l of every entry."""
        return (self.margin + s).square()

    def sums(self, partners: Tensor, anchors: Tensor) -> Tensor:
        """From mean and variance of the partners."""
        partners = partners.double()
        mean = partners.mean()
        shifted = (self.margin + mean - anchors.double()).square()
        return len(partners) * shifted + (partners - mean).square().sum()


@dataclass(frozen=True)
class Logistic(Surrogate):
    """log2(1 + exp(s)), which is 1 at 0.

    Examples:
        >>> Logistic()(torch.tensor([0.0]))
        tensor([1.])
    """

    def __call__(self, s: Tensor) -> Tensor:
        """l of every entry."""
        return precise_softplus(s) / _LOG_2

    def sums(self, partners: Tensor, anchors: Tensor) -> Tensor:
        """By interpolation, with errors below rounding."""
        return (
            interpolated(precise_softplus, lambda count, total: total, partners, anchors) / _LOG_2
        )


@dataclass(frozen=True)
class Sigmoid(Surrogate):
    """1 / (1 + exp(-s / temperature)): close to the step function, with gradients only near 0.

    Examples:
        >>> Sigmoid()(torch.tensor([0.0]))
        tensor([0.5000])
    """

    temperature: float = 1.0

    def __call__(self, s: Tensor) -> Tensor:
        """l of every entry."""
        return torch.sigmoid(s / self.temperature)

    def sums(self, partners: Tensor, anchors: Tensor) -> Tensor:
        """By interpolation, with errors below rounding."""
        partners, anchors = (x.double() / self.temperature for x in (partners, anchors))
        return interpolated(torch.sigmoid, lambda count, total: count, partners, anchors)


@dataclass(frozen=True)
class Exponential(Surrogate):
    """exp(s), continued along its tangent above ``cap``, so that it never overflows.

    Examples:
        >>> Exponential()(torch.tensor([0.0]))
        tensor([1.])
    """

    cap: float = 20.0

    def __call__(self, s: Tensor) -> Tensor:
        """l of every entry."""
        return exp_then_linear(s, self.cap)

    def sums(self, partners: Tensor, anchors: Tensor) -> Tensor:
        """By sorting: sums of exp(s) up to ``cap``, of the tangent beyond."""
        every, bounds = tails(partners), anchors.double() + self.cap
        sums = torch.cat([bounds.new_full((1,), -torch.inf), every.start[:-1].logcumsumexp(0)])
        below = torch.searchsorted(every.start, bounds, right=True)
        count, first, _ = every.above(bounds)
        return (sums[below] - anchors.double()).exp() + math.exp(self.cap) * (count + first)


def precise_softplus(s: Tensor) -> Tensor:
    """log(1 + exp(s)) to full precision: torch's own threshold of 20 is off by 2e-9 there.

    Examples:
        >>> precise_softplus(torch.tensor(21.0, dtype=torch.float64)).item() > 21
        True
    """
    return softplus(s, threshold=40)


def exp_then_linear(x: Tensor, cap: float) -> Tensor:
    """exp(x) up to ``cap``, its tangent beyond: convex, increasing, finite.

    Examples:
        >>> bool(exp_then_linear(torch.tensor(1e4), cap=20.0).isfinite())
        True
    """
    # relu has no slope at 0, and clamp(max=cap) has one at cap: at x = cap one of both counts.
    return x.clamp(max=cap).exp() * (1 + (x - cap).relu())
