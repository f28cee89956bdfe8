"""Targets, which hold the labels of an estimator and define its objectives and metric."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Phase", "Rows", "Target", "balanced_folds"]

Rows = NDArray[np.intp]
_FEWEST = 10
"""Smallest number of members of each kind in a fold; with fewer, a metric is too noisy."""


class Phase(Protocol):
    """An objective of the scores of all samples; every ``fcco.losses.ScoreLoss`` is one."""

    def __call__(self, scores: Tensor, index: Tensor) -> Tensor:
        """Estimate the objective from a batch, for networks."""

    def exact(self, scores: Tensor) -> Tensor:
        """Compute the objective from the scores of all samples, for linear models."""


@dataclass(frozen=True, eq=False)
class Target(ABC):
    """Base class for the labels of n samples, and what they mean for scores.

    Subclasses are frozen data classes that hold only labels and settings. Every array has one row
    per sample. Two equal targets have the same hash (``joblib.hash``), by which ``partial_fit``
    recognizes its data.
    """

    weight: NDArray[np.float64] | None = field(default=None, kw_only=True)
    """(n,), how much each sample counts, all above 0; or None if all count alike."""

    @property
    def outputs(self) -> int:
        """The number of scores per sample."""
        return 1

    @property
    def probabilities(self) -> NDArray[np.float64] | None:
        """(n,), the probability of each sample to be drawn for a batch; None if all are equal."""
        return None

    @abstractmethod
    def phases(self) -> Sequence[Phase]:
        """Return the objectives to minimize in turn: first a likelihood, last the metric's."""

    @abstractmethod
    def metric(self, scores: Tensor) -> float:
        """Return the metric of scores (n, outputs); higher is better."""

    @abstractmethod
    def folds(self, count: int, random: RandomState) -> Rows | None:
        """Return the fold of each sample, 0 to ``count`` - 1, or None if one would be too small."""

    def take(self, rows: Any) -> Self:
        """Return the target of some samples."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        arrays = {k: v[rows] for k, v in values.items() if isinstance(v, np.ndarray)}
        return replace(self, **arrays)


def balanced_folds(kinds: NDArray[Any], count: int, random: RandomState) -> Rows | None:
    """Return folds with equal shares of every kind, or None if a fold gets fewer than 10.

    Examples:
        >>> kinds = np.repeat([0, 1], [300, 100])
        >>> np.bincount(balanced_folds(kinds, 10, RandomState(0))[kinds == 1])
        array([10, 10, 10, 10, 10, 10, 10, 10, 10, 10])
        >>> balanced_folds(kinds[:399], 10, RandomState(0)) is None
        True
    """
    names, places = np.unique(kinds, return_inverse=True)
    if np.bincount(places).min() < _FEWEST * count:
        return None
    folds = np.empty(len(places), dtype=np.intp)
    for kind in range(len(names)):
        members = random.permutation(np.flatnonzero(places == kind))
        # Dealing shuffled members out in turn gives each fold the same number of every kind.
        folds[members] = np.arange(len(members)) % count
    return folds
