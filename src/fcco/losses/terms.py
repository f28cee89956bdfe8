"""What a pair of scores adds to the sum of an anchor, in units of exp(scale)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fcco.objectives.surrogates import Surrogate

__all__ = ["Exponentials", "Plain", "Term"]


class Term(ABC):
    """A positive function of the difference of two scores, and the logarithm of its size."""

    @abstractmethod
    def size(self, s: Tensor) -> Tensor:
        """The logarithm of the term."""

    @abstractmethod
    def __call__(self, s: Tensor, scale: Tensor, counts: Tensor | None) -> Tensor:
        """The term over exp(scale), 0 where it does not count; None: all do."""


@dataclass(frozen=True)
class Plain(Term):
    """l(s).

    Examples:
        >>> from fcco.objectives import SquaredHinge
        >>> s = torch.tensor([1.0, 1.0])
        >>> Plain(SquaredHinge())(s, torch.tensor(0.0), torch.tensor([True, False]))
        tensor([4., 0.])
    """

    surrogate: Surrogate

    def size(self, s: Tensor) -> Tensor:
        """log l(s)."""
        return self.surrogate(s).log()

    def __call__(self, s: Tensor, scale: Tensor, counts: Tensor | None) -> Tensor:
        """l(s) over exp(scale)."""
        terms = self.surrogate(s) * (-scale).exp()
        return terms if counts is None else terms.where(counts, 0)


@dataclass(frozen=True)
class Exponentials(Term):
    """exp(l(s) / temperature).

    Examples:
        >>> from fcco.objectives import SquaredHinge
        >>> term, s = Exponentials(SquaredHinge(), 0.25**6), torch.tensor([1.0])
        >>> term.size(s), term(s, torch.tensor(16384.0), None)
        (tensor([16384.]), tensor([1.]))
    """

    surrogate: Surrogate
    temperature: float

    def size(self, s: Tensor) -> Tensor:
        """l(s) / temperature."""
        return self.surrogate(s) / self.temperature

    def __call__(self, s: Tensor, scale: Tensor, counts: Tensor | None) -> Tensor:
        """exp(l(s) / temperature - scale)."""
        exponents = self.size(s) - scale
        return (exponents if counts is None else exponents.where(counts, -torch.inf)).exp()
