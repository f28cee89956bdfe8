"""Counters of the oracle's evaluations."""

from dataclasses import dataclass

__all__ = ["Queries"]


@dataclass(frozen=True)
class Queries:
    """Number of evaluations so far; one value or gradient of an inner sample at one point counts 1.

    Examples:
        >>> Queries(values=10, gradients=5).work
        20
    """

    values: int = 0
    gradients: int = 0

    @property
    def work(self) -> int:
        """values + 2 gradients, the unit in which methods are given equal budgets."""
        return self.values + 2 * self.gradients
