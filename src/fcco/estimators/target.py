"""What there is to learn: the part that an estimator gives to the training."""

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from torch import Tensor

from fcco.data import BlockData
from fcco.problem.objective import Objective

__all__ = ["FEWEST", "Rows", "Target", "some_of_each"]

Rows = NDArray[np.intp]
FEWEST = 10
"""Held-out members of the rarest kind below which a metric is too noisy to stop by."""


class Target(ABC):
    """The labels of n samples, and what they mean for scores of the samples."""

    outputs: int = 1
    """Scores a sample."""
    samples: int
    """Inner samples for each block, unless the user says otherwise."""
    shifts: bool = False
    """Whether a constant added to all scores matters: without it, an offset is only drift."""

    @abstractmethod
    def problem(self, inputs: Tensor) -> tuple[BlockData[Any], Objective]:
        """The data set and the objective, with the same blocks."""

    @abstractmethod
    def metric(self, scores: Tensor) -> float:
        """How good scores (n, outputs) are; higher is better."""

    @abstractmethod
    def held_out(self, fraction: float, random: RandomState) -> Rows:
        """About ``fraction`` of the rows, to stop by; none where they would be too few."""

    @abstractmethod
    def take(self, rows: Rows) -> Self:
        """The labels of some rows, in ascending order."""

    @abstractmethod
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All there is, by which the same target is known again."""


def some_of_each(kinds: NDArray[Any], fraction: float, random: RandomState) -> Rows:
    """About ``fraction`` of the members of each kind, or nobody if that is too few of one.

    Examples:
        >>> kinds = np.repeat([0, 1], [300, 100])
        >>> rows = some_of_each(kinds, 0.1, RandomState(0))
        >>> np.bincount(kinds[rows])
        array([30, 10])
        >>> len(some_of_each(kinds[:350], 0.1, RandomState(0)))
        0
    """
    parts = []
    for kind in np.unique(kinds):
        members = np.flatnonzero(kinds == kind)
        count = round(fraction * len(members))
        if count < FEWEST:
            return np.empty(0, dtype=np.intp)
        parts.append(random.permutation(members)[:count])
    return np.sort(np.concatenate(parts))
