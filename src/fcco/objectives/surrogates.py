"""Surrogates of the step function 1[s > 0], as parts of an objective; all non-decreasing."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

__all__ = [
    "Exponential",
    "Logistic",
    "Sigmoid",
    "Squared",
    "SquaredHinge",
    "Surrogate",
    "exp_then_linear",
]


class Surrogate(ABC):
    """l(s), where s is the score that should be low minus the score that should be high."""

    @abstractmethod
    def __call__(self, s: Tensor) -> Tensor:
        """l of every entry."""

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


@dataclass(frozen=True)
class Logistic(Surrogate):
    """log2(1 + exp(s)), which is 1 at 0.

    Examples:
        >>> Logistic()(torch.tensor([0.0]))
        tensor([1.])
    """

    def __call__(self, s: Tensor) -> Tensor:
        """l of every entry."""
        return softplus(s) / 0.6931471805599453


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


def exp_then_linear(x: Tensor, cap: float) -> Tensor:
    """exp(x) up to ``cap``, its tangent beyond: convex, increasing, finite.

    Examples:
        >>> bool(exp_then_linear(torch.tensor(1e4), cap=20.0).isfinite())
        True
    """
    return x.clamp(max=cap).exp() * (1 + (x - cap).clamp(min=0))
