"""Targets: the labels of an estimator and their meaning for the training."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Phase", "Rows", "Target", "spread"]

Rows = NDArray[np.intp]
_FEWEST = 10
"""The smallest number of members of each kind in a fold; with fewer, a metric is too noisy."""


class Phase(Protocol):
    """An objective of the scores of all samples, which a training minimizes."""

    def __call__(self, scores: Tensor, index: Tensor) -> Tensor:
        """Its estimate from a batch, as the losses of ``fcco.losses`` give it."""

    def exact(self, scores: Tensor) -> Tensor:
        """Its value for the scores of all samples."""


class Target(ABC):
    """The labels of n samples, and their meaning for the scores of the samples."""

    outputs: int = 1
    """The number of scores per sample."""
    weight: NDArray[np.float64] | None = None
    """(n,), how much each sample counts; None: all alike."""
    chances: NDArray[np.float64] | None = None
    """(n,), of each sample to be drawn for a batch; None: all alike."""

    @abstractmethod
    def phases(self) -> Sequence[Phase]:
        """Objectives to minimize one after the other: first a likelihood, last the metric's."""

    @abstractmethod
    def metric(self, scores: Tensor) -> float:
        """How good scores (n, outputs) are; higher is better."""

    @abstractmethod
    def folds(self, count: int, random: RandomState) -> Rows | None:
        """The fold of each sample, 0 to ``count`` - 1; None if some would be too small."""

    @abstractmethod
    def take(self, rows: Rows) -> Self:
        """The labels of some rows, in ascending order."""

    @abstractmethod
    def arrays(self) -> tuple[Any, ...]:
        """All labels and settings, to recognize the same target again."""


def spread(kinds: NDArray[Any], count: int, random: RandomState) -> Rows | None:
    """Folds with the same share of every kind; None if one would get fewer than 10 of a kind.

    Examples:
        >>> kinds = np.repeat([0, 1], [300, 100])
        >>> np.bincount(spread(kinds, 10, RandomState(0))[kinds == 1])
        array([10, 10, 10, 10, 10, 10, 10, 10, 10, 10])
        >>> spread(kinds[:350], 10, RandomState(0)) is None
        True
    """
    names, places = np.unique(kinds, return_inverse=True)
    if np.bincount(places).min() < _FEWEST * count:
        return None
    folds = np.empty(len(places), dtype=np.intp)
    for kind in range(len(names)):
        members = random.permutation(np.flatnonzero(places == kind))
        folds[members] = np.arange(len(members)) % count
    return folds
