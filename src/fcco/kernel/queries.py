"""Counting what the oracle was asked."""

from dataclasses import dataclass

__all__ = ["Queries"]


@dataclass(frozen=True)
class Queries:
    """Inner-sample evaluations so far: a sample's value, or its gradient, at one point counts one.

    Examples:
        >>> Queries(values=10, gradients=5).work
        20
    """

    values: int = 0
    gradients: int = 0

    @property
    def work(self) -> int:
        """values + 2 gradients, the unit of an equal oracle budget."""
        return self.values + 2 * self.gradients
