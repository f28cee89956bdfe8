"""Labels of a classifier: classes that exclude each other, or several tasks with a label each."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from fcco.estimators.goals import Goal
from fcco.estimators.target import Phase, Rows, Target, spread
from fcco.objectives import one_vs_rest

__all__ = ["Labels"]

_SHARE = 0.1
"""The weight of cross-entropy beside the objective of the metric: it gives scores a zero."""


@dataclass(frozen=True, eq=False)
class Labels(Target):
    """Labels (n, tasks), 1, 0, or -1 where missing; with ``exclusive`` one 1 in each row.

    The scores of exclusive classes are those of a softmax, and a class is ranked by the log-odds of
    its probability.
    """

    labels: NDArray[np.int8]
    goal: Goal
    exclusive: bool = False
    weight: NDArray[np.float64] | None = None

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """The tasks, or the classes."""
        return int(self.labels.shape[1])

    @property
    def chances(self) -> NDArray[np.float64] | None:  # type: ignore[override]
        """The weights: a loss of batches has none of its own."""
        return None if self.weight is None else self.weight / self.weight.sum()

    def phases(self) -> Sequence[Phase]:
        """Cross-entropy, then the metric."""
        return (_CrossEntropy(self), _Metric(self)) if self.tasks else (_CrossEntropy(self),)

    def metric(self, scores: Tensor) -> float:
        """The mean over the tasks that have both labels."""
        if not self.tasks:
            raise ValueError("y holds only one class: there is nothing to compare")
        odds = self.odds(scores).numpy()
        found = []
        for task in self.tasks:
            known = self.labels[:, task] >= 0
            weight = None if self.weight is None else self.weight[known]
            found.append(self.goal.metric(odds[known, task], self.labels[known, task] == 1, weight))
        return float(np.mean(found))

    def folds(self, count: int, random: RandomState) -> Rows | None:
        """The same share of every class; of several tasks, of the rarest label."""
        if self.exclusive or self.outputs == 1:
            return spread(
                self.labels.argmax(1) if self.exclusive else self.labels[:, 0], count, random
            )
        rarest = int((self.labels == 1).sum(0).argmin())
        return spread(self.labels[:, rarest] == 1, count, random)

    def take(self, rows: Rows) -> Self:
        """Some samples."""
        weight = None if self.weight is None else self.weight[rows]
        return type(self)(self.labels[rows], self.goal, self.exclusive, weight)

    def arrays(self) -> tuple[Any, ...]:
        """Labels, weights and the metric."""
        return self.labels, self.weight, repr(self.goal)

    def odds(self, scores: Tensor) -> Tensor:
        """What ranks the samples: scores, or the log-odds of a softmax."""
        return one_vs_rest(scores) if self.exclusive else scores

    @cached_property
    def tasks(self) -> list[int]:
        """The tasks that have both labels."""
        both = (self.labels == 1).any(0) & (self.labels == 0).any(0)
        return [int(task) for task in np.flatnonzero(both)]

    @cached_property
    def _tensor(self) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(self.labels))

    @cached_property
    def weights(self) -> Tensor:
        """Of each sample, adding up to 1."""
        given = np.ones(len(self.labels)) if self.weight is None else self.weight
        return torch.from_numpy(given / given.sum())

    def cross_entropies(self, scores: Tensor, rows: Any = slice(None)) -> Tensor:
        """Of each sample, the sum over its tasks."""
        labels = self._tensor[rows]
        if self.exclusive:
            return cross_entropy(scores, labels.argmax(1), reduction="none")
        costs = binary_cross_entropy_with_logits(
            scores, labels.clamp(min=0).to(scores.dtype), reduction="none"
        )
        return (costs * (labels >= 0)).sum(1)


class _CrossEntropy:
    def __init__(self, labels: Labels) -> None:
        self.labels = labels

    def __call__(self, scores: Tensor, index: Tensor) -> Tensor:
        return self.labels.cross_entropies(scores, index).mean()

    def exact(self, scores: Tensor) -> Tensor:
        return (self.labels.weights * self.labels.cross_entropies(scores)).sum()


class _Metric(_CrossEntropy):
    """The objective of the metric, summed over the tasks, and a share of cross-entropy.

    A task counts by its rarer label, 2 p (1 - p), as in cross-entropy: the ridge then has the same
    strength.
    """

    def __init__(self, labels: Labels) -> None:
        super().__init__(labels)
        part = labels.weights @ (labels._tensor[:, labels.tasks] == 1).double()
        self.scales = 2 * part * (1 - part)

    @cached_property
    def loss(self) -> Any:
        """Of batches."""
        return self.labels.goal.loss(self.labels.labels)

    def __call__(self, scores: Tensor, index: Tensor) -> Tensor:
        loss: Tensor = self.loss(self.labels.odds(scores), index)
        return loss * len(self.scales) + _SHARE * super().__call__(scores, index)

    def exact(self, scores: Tensor) -> Tensor:
        tasks = self.labels.tasks
        odds, labels = self.labels.odds(scores)[:, tasks], self.labels._tensor[:, tasks]
        costs = self.labels.goal.exact(odds, labels, self.labels.weights)
        return (self.scales * costs).sum() + _SHARE * super().exact(scores)
