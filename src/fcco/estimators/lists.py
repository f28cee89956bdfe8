"""Graded lists, such as queries with their documents."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import NDArray
from torch import Tensor

from fcco.data import BlockData, ListData
from fcco.estimators.target import FEWEST, Rows, Target
from fcco.metrics import ndcg
from fcco.objectives import NDCG, ListNet
from fcco.problem.objective import Objective

__all__ = ["Lists"]


@dataclass(frozen=True, eq=False)
class Lists(Target):
    """Grades of the items, list by list."""

    grades: NDArray[np.float64]
    lengths: NDArray[np.int64]
    objective: str
    top_k: int | None
    samples = 32

    def problem(self, inputs: Tensor) -> tuple[BlockData[Any], Objective]:
        """Items, each compared with its list."""
        grades, lengths = torch.from_numpy(self.grades), torch.from_numpy(self.lengths)
        if self.objective == "listnet":
            return ListData(inputs, grades, lengths, relevant=False), ListNet(grades, lengths)
        return ListData(inputs, grades, lengths), NDCG(grades, lengths, top_k=self.top_k)

    def metric(self, scores: Tensor) -> float:
        """NDCG."""
        grades, lengths = torch.from_numpy(self.grades), torch.from_numpy(self.lengths)
        return ndcg(scores[:, 0], grades, lengths, self.top_k)

    def held_out(self, fraction: float, random: RandomState) -> Rows:
        """Whole lists, chosen among those with a relevant item."""
        starts = np.cumsum(self.lengths) - self.lengths
        useful = np.flatnonzero(np.maximum.reduceat(self.grades, starts) > 0)
        count = round(fraction * len(useful))
        if count < FEWEST:
            return np.empty(0, dtype=np.intp)
        lists = np.sort(random.permutation(useful)[:count])
        return np.flatnonzero(np.isin(self._owner(), lists))

    def take(self, rows: Rows) -> Self:
        """Some lists, whole."""
        lengths = np.bincount(self._owner()[rows], minlength=len(self.lengths))
        return type(self)(self.grades[rows], lengths[lengths > 0], self.objective, self.top_k)

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Grades, lengths, and the options of the target."""
        return self.grades, self.lengths, np.array(f"{self.objective} {self.top_k}")

    def _owner(self) -> NDArray[np.intp]:
        return np.repeat(np.arange(len(self.lengths)), self.lengths)
