"""The target of classifiers: classes that exclude each other, or labels of several tasks.

A classifier is trained first by cross-entropy, then by the objective of its metric.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from fcco.estimators.target import Phase, Rows, Target, balanced_folds
from fcco.estimators.validation import take
from fcco.losses import ScoreLoss
from fcco.objectives import ScoreObjective, one_vs_rest
from fcco.objectives.ranked import RankedObjective

__all__ = ["ClassTarget"]

_SHARE = 0.1
"""Weight of the cross-entropy that is added to the metric's objective, which fixes the zero of
the scores."""

_PAIRS = 2**18
"""Largest number of pairs of an exact objective. With more pairs, every k-th sample is used."""


@dataclass(frozen=True, eq=False)
class ClassTarget(Target):
    """Labels (n, tasks), which are 1, 0, or -1 where missing.

    With ``exclusive`` each row has exactly one 1. The scores are then those of a softmax, and a
    class is ranked by the log-odds of its probability.
    """

    labels: NDArray[np.int8]
    objective: Callable[[NDArray[np.int8]], ScoreObjective]
    """A function that builds the objective for the metric from labels."""
    task_metric: Callable[..., float]
    """scikit-learn's metric of one task, a function of labels, scores and ``sample_weight``."""
    exclusive: bool = False

    @property
    def outputs(self) -> int:
        """The number of tasks, or of classes."""
        return int(self.labels.shape[1])

    @property
    def probabilities(self) -> NDArray[np.float64] | None:
        """The weights, in proportion to which batches are drawn."""
        return None if self.weight is None else self.weight / self.weight.sum()

    @property
    def tasks(self) -> list[int]:
        """The tasks that have both labels."""
        both = (self.labels == 1).any(0) & (self.labels == 0).any(0)
        return [int(task) for task in np.flatnonzero(both)]

    def phases(self) -> Sequence[Phase]:
        """Return the phases: cross-entropy, then the metric's objective."""
        return _CrossEntropy(self), _Metric(self)

    def metric(self, scores: Tensor) -> float:
        """Return the mean of the metric over the tasks that have both labels."""
        tasks = self.tasks
        if not tasks:
            raise ValueError("y holds only one class: there is nothing to compare")
        odds = self.odds(scores).numpy()
        total = 0.0
        for task in tasks:
            known = self.labels[:, task] >= 0
            positive, weight = self.labels[known, task] == 1, take(self.weight, known)
            total += self.task_metric(positive, odds[known, task], sample_weight=weight)
        return float(total / len(tasks))

    def folds(self, count: int, random: RandomState) -> Rows | None:
        """Return folds with equal shares of every class, or of the rarest label of all tasks."""
        if self.exclusive:
            return balanced_folds(self.labels.argmax(1), count, random)
        if self.outputs == 1:
            return balanced_folds(self.labels[:, 0], count, random)
        tasks = self.tasks
        counts = np.stack([(self.labels[:, tasks] == label).sum(0) for label in (0, 1)])
        label, place = np.unravel_index(counts.argmin(), counts.shape)
        return balanced_folds(self.labels[:, tasks[place]] == label, count, random)

    def odds(self, scores: Tensor) -> Tensor:
        """Return the scores that rank the samples; for exclusive classes these are log-odds."""
        return one_vs_rest(scores) if self.exclusive else scores


class _CrossEntropy:
    """The mean over samples of their cross-entropy, summed over the tasks."""

    def __init__(self, target: ClassTarget) -> None:
        self.target = target
        self.labels = torch.from_numpy(np.ascontiguousarray(target.labels))
        weight = np.ones(len(self.labels)) if target.weight is None else target.weight
        self.shares = torch.from_numpy(weight / weight.sum())

    def __call__(self, scores: Tensor, index: Tensor) -> Tensor:
        # The mean has no weights, because batches are drawn in proportion to the weights.
        return self._costs(scores, self.labels[index]).mean()

    def exact(self, scores: Tensor) -> Tensor:
        return (self.shares * self._costs(scores, self.labels)).sum()

    def _costs(self, scores: Tensor, labels: Tensor) -> Tensor:
        if self.target.exclusive:
            return cross_entropy(scores, labels.argmax(1), reduction="none")
        positive = labels.clamp(min=0).to(scores.dtype)
        costs = binary_cross_entropy_with_logits(scores, positive, reduction="none")
        return (costs * (labels >= 0)).sum(1)


class _Task(NamedTuple):
    """The objective of one task, for some or all samples."""

    number: int
    factor: float
    rows: Any
    objective: ScoreObjective
    weight: NDArray[np.float64] | None


class _Metric(_CrossEntropy):
    """The objective of the metric, summed over the tasks, plus a share of cross-entropy."""

    @cached_property
    def loss(self) -> ScoreLoss:
        """The loss for batches. It has no weights, because batches are drawn in proportion."""
        return ScoreLoss(self.target.objective(self.target.labels))

    def __call__(self, scores: Tensor, index: Tensor) -> Tensor:
        value: Tensor = self.loss(self.target.odds(scores), index)
        return value * len(self.target.tasks) + _SHARE * super().__call__(scores, index)

    @cached_property
    def tasks(self) -> list[_Task]:
        """The objective for all samples, task by task."""
        target = self.target
        whole = target.objective(target.labels)
        found = []
        for task in target.tasks:
            labels = target.labels[:, [task]]
            # A task has the factor 2 p (1 - p), with p the share of positives. This is how strongly
            # it counts in cross-entropy, so the ridge has the same strength in both phases.
            positive = float((self.shares * torch.from_numpy(labels[:, 0] == 1)).sum())
            factor = 2 * positive * (1 - positive)
            rows: Any = slice(None)
            if isinstance(whole, RankedObjective):
                rows = _some_rows(labels[:, 0], len(target.tasks))
            weight = take(target.weight, rows)
            found.append(_Task(task, factor, rows, whole.on(labels[rows]), weight))
        return found

    def exact(self, scores: Tensor) -> Tensor:
        odds = self.target.odds(scores)
        value = _SHARE * super().exact(scores)
        for task in self.tasks:
            part = odds[:, task.number][task.rows]
            value = value + task.factor * task.objective.exact(part, task.weight)
        return value


def _some_rows(labels: NDArray[np.int8], num_tasks: int) -> Any:
    """Return all rows, or every k-th row of each label if there would be too many pairs.

    Examples:
        >>> _some_rows(np.array([1, 0, -1]), 1)
        slice(None, None, None)
        >>> rows = _some_rows(np.arange(2000) % 2, 1)  # 2,000,000 pairs
        >>> len(rows), rows[:4]
        (668, array([0, 1, 6, 7]))
    """
    positives, negatives = (np.flatnonzero(labels == label) for label in (1, 0))
    # Taking every k-th sample divides the number of pairs by k^2, hence the square root.
    pairs = len(positives) * (len(positives) + len(negatives)) * num_tasks
    every = max(1, round((pairs / _PAIRS) ** 0.5))
    if every == 1:
        return slice(None)
    return np.sort(np.concatenate([positives[::every], negatives[::every]]))
