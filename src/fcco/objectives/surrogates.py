"""Surrogates of the step function 1[s > 0], which objectives are built from."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from fcco.objectives.domains import check_finite, check_positive
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
    """Base class of functions l(s) that replace the step function.

    The argument s is the score that should be low minus the score that should be high. Surrogates
    are non-decreasing.
    """

    zero_below: float = -math.inf
    """The number up to which l(s) = 0."""

    @abstractmethod
    def __call__(self, s: Tensor) -> Tensor:
        """Return l of every entry."""

    def sums(self, partners: Tensor, anchors: Tensor) -> Tensor:
        """Return sum_j l(partners_j - a) for each a of ``anchors``, in float64.

        By default all pairs are formed. A subclass with a faster way defines this method in the
        same class as ``__call__``.

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
    """The squared hinge, max(margin + s, 0)^2.

    Examples:
        >>> SquaredHinge()(torch.tensor([-2.0, 1.0]))
        tensor([0., 4.])
    """

    margin: float = 1.0

    def __post_init__(self) -> None:
        check_finite(margin=self.margin)

    def __call__(self, s: Tensor) -> Tensor:
        """Return l of every entry."""
        return (self.margin + s).clamp(min=0).square()

    @property
    def zero_below(self) -> float:  # type: ignore[override]
        """The number -margin, up to which l(s) = 0."""
        return -self.margin

    def sums(self, partners: Tensor, anchors: Tensor) -> Tensor:
        """Return the sums by sorting: only the partners above anchor - margin count."""
        # max(margin + s_j - a, 0)^2 is d^2 over the partners above the bound a - margin.
        return tails(partners).above(anchors.double() - self.margin)[2]


@dataclass(frozen=True)
class Squared(Surrogate):
    """The square, (margin + s)^2, whose slope is affine, as ``FreshPair`` needs.

    It is non-decreasing only above -margin.

    Examples:
        >>> Squared()(torch.tensor([-1.0, 1.0]))
        tensor([0., 4.])
    """

    margin: float = 1.0

    def __post_init__(self) -> None:
        check_finite(margin=self.margin)

    def __call__(self, s: Tensor) -> Tensor:
        """Return l of every entry."""
        return (self.margin + s).square()

    def sums(self, partners: Tensor, anchors: Tensor) -> Tensor:
        """Return the sums from the mean and the variance of the partners."""
        partners = partners.double()
        mean = partners.mean()
        # sum_j (margin + s_j - a)^2 = n (margin + mean - a)^2 + sum_j (s_j - mean)^2, where both
        # terms are positive.
        shifted = (self.margin + mean - anchors.double()).square()
        return len(partners) * shifted + (partners - mean).square().sum()


@dataclass(frozen=True)
class Logistic(Surrogate):
    """The logistic loss, log2(1 + exp(s)), which is 1 at 0.

    Examples:
        >>> Logistic()(torch.tensor([0.0]))
        tensor([1.])
    """

    def __call__(self, s: Tensor) -> Tensor:
        """Return l of every entry."""
        return precise_softplus(s) / _LOG_2

    def sums(self, partners: Tensor, anchors: Tensor) -> Tensor:
        """Return the sums by interpolation, with errors below rounding."""
        return (
            interpolated(precise_softplus, lambda count, total: total, partners, anchors) / _LOG_2
        )


@dataclass(frozen=True)
class Sigmoid(Surrogate):
    """The sigmoid, 1 / (1 + exp(-s / temperature)).

    It is close to the step function, and has gradients only near 0.

    Examples:
        >>> Sigmoid()(torch.tensor([0.0]))
        tensor([0.5000])
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_positive(temperature=self.temperature)

    def __call__(self, s: Tensor) -> Tensor:
        """Return l of every entry."""
        return torch.sigmoid(s / self.temperature)

    def sums(self, partners: Tensor, anchors: Tensor) -> Tensor:
        """Return the sums by interpolation, with errors below rounding."""
        partners, anchors = (x.double() / self.temperature for x in (partners, anchors))
        return interpolated(torch.sigmoid, lambda count, total: count, partners, anchors)


@dataclass(frozen=True)
class Exponential(Surrogate):
    """The exponential exp(s), continued along its tangent above ``cap``, which never overflows.

    Examples:
        >>> Exponential()(torch.tensor([0.0]))
        tensor([1.])
    """

    cap: float = 20.0

    def __post_init__(self) -> None:
        check_finite(cap=self.cap)

    def __call__(self, s: Tensor) -> Tensor:
        """Return l of every entry."""
        return exp_then_linear(s, self.cap)

    def sums(self, partners: Tensor, anchors: Tensor) -> Tensor:
        """Return the sums by sorting: of exp(s) up to ``cap``, and of the tangent beyond."""
        every, bounds = tails(partners), anchors.double() + self.cap
        # Cumulative sums in logarithms, because exp(s) of a large score alone would overflow.
        sums = torch.cat([bounds.new_full((1,), -torch.inf), every.start[:-1].logcumsumexp(0)])
        below = torch.searchsorted(every.start, bounds, right=True)
        count, first, _ = every.above(bounds)
        return (sums[below] - anchors.double()).exp() + math.exp(self.cap) * (count + first)


def precise_softplus(s: Tensor) -> Tensor:
    """Return log(1 + exp(s)) to full precision; torch's default threshold 20 is off by 2e-9.

    Examples:
        >>> precise_softplus(torch.tensor(21.0, dtype=torch.float64)).item() > 21
        True
    """
    return softplus(s, threshold=40)


def exp_then_linear(x: Tensor, cap: float) -> Tensor:
    """Return exp(x) up to ``cap`` and its tangent beyond, which is convex, increasing and finite.

    Examples:
        >>> bool(exp_then_linear(torch.tensor(1e4), cap=20.0).isfinite())
        True
    """
    # At x = cap exactly one slope must count. That of relu is 0 there. That of clamp is 1 in torch
    # 2.13 and 0 in torch 2.15, so a mask takes its place.
    return x.masked_fill(x > cap, cap).exp() * (1 + (x - cap).relu())
