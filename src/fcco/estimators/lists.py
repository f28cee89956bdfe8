"""Graded lists, such as queries with their documents."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import NDArray
from torch import Tensor

from fcco.estimators.target import Phase, Rows, Target, spread
from fcco.losses import ListNetLoss, NDCGLoss
from fcco.metrics import ndcg

__all__ = ["Lists"]


@dataclass(frozen=True, eq=False)
class Lists(Target):
    """Grades of the items, list by list."""

    grades: NDArray[np.float64]
    lengths: NDArray[np.int64]
    objective: str
    top_k: int | None
    weight: NDArray[np.float64] | None = None

    def phases(self) -> Sequence[Phase]:
        """ListNet's cross-entropy, then NDCG if it is the objective."""
        weights = self._weights()
        first = ListNetLoss(self.grades, self.lengths, weights=weights)
        if self.objective == "listnet":
            return (first,)
        return first, NDCGLoss(self.grades, self.lengths, top_k=self.top_k, weights=weights)

    def metric(self, scores: Tensor) -> float:
        """NDCG."""
        grades, lengths = torch.from_numpy(self.grades), torch.from_numpy(self.lengths)
        return ndcg(scores[:, 0], grades, lengths, self.top_k, weights=self._weights())

    def folds(self, count: int, random: RandomState) -> Rows | None:
        """Whole lists, the same share of those with a relevant item."""
        folds = spread(np.maximum.reduceat(self.grades, self._starts()) > 0, count, random)
        return None if folds is None else folds[self._owner()]

    def take(self, rows: Rows) -> Self:
        """Some lists, whole."""
        lengths = np.bincount(self._owner()[rows], minlength=len(self.lengths))
        weight = None if self.weight is None else self.weight[rows]
        lengths = lengths[lengths > 0]
        return type(self)(self.grades[rows], lengths, self.objective, self.top_k, weight)

    def arrays(self) -> tuple[Any, ...]:
        """Grades, lengths, and the options of the target."""
        return self.grades, self.lengths, self.objective, self.top_k, self.weight

    def _weights(self) -> Tensor | None:
        """Of the lists, whose items all have the same."""
        return None if self.weight is None else torch.from_numpy(self.weight[self._starts()])

    def _starts(self) -> NDArray[np.int64]:
        starts: NDArray[np.int64] = np.cumsum(self.lengths) - self.lengths
        return starts

    def _owner(self) -> NDArray[np.intp]:
        return np.repeat(np.arange(len(self.lengths)), self.lengths)
