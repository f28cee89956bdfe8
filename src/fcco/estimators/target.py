"""Targets: the labels of an estimator and their meaning for the training."""

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
"""The smallest number of held-out members of each kind; with fewer, a metric is too noisy."""


class Target(ABC):
    """The labels of n samples, and their meaning for the scores of the samples."""

    outputs: int = 1
    """The number of scores per sample."""
    samples: int
    """The default number of inner samples per block."""
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
        """About ``fraction`` of the rows, for early stopping; none if they would be too few."""

    @abstractmethod
    def take(self, rows: Rows) -> Self:
        """The labels of some rows, in ascending order."""

    @abstractmethod
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All tensors, to recognize the same target again."""


def some_of_each(kinds: NDArray[Any], fraction: float, random: RandomState) -> Rows:
    """About ``fraction`` of the members of each kind, or none if that is too few of one.

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
