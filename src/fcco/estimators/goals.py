"""Metrics of a classifier: the metric itself, a smooth objective of all samples, and its loss."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor
from torch.nn.functional import softplus

from fcco.losses import APLoss, AUCLoss, PartialAUCLoss, TableLoss
from fcco.objectives import MultiTaskAUC, Sigmoid, SquaredHinge
from fcco.problem.batches import LabelBatch

__all__ = ["AUC", "AveragePrecision", "Goal", "MomentAUC", "PartialAUC"]

_PAIRS = 2**18
"""The largest number of pairs of an exact objective; of more, every k-th sample is taken."""


class Goal(ABC):
    """A metric to maximize."""

    @abstractmethod
    def metric(
        self, scores: NDArray[Any], positive: NDArray[np.bool_], weight: NDArray[Any] | None
    ) -> float:
        """The metric of one task: scores, labels and weights (n,)."""

    @abstractmethod
    def exact(self, scores: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        """What ``loss.exact`` is of weighted samples, for each task, (n, tasks) to (tasks,)."""

    @abstractmethod
    def loss(self, labels: NDArray[np.int8]) -> Any:
        """The loss for batches, of labels (n, tasks) that are 1, 0, or -1 for missing."""


@dataclass(frozen=True)
class AUC(Goal):
    """The area under the ROC curve.

    Examples:
        >>> AUC().metric(np.array([1.0, 2.0]), np.array([False, True]), None)
        1.0
    """

    temperature: float = 1.0

    def metric(
        self, scores: NDArray[Any], positive: NDArray[np.bool_], weight: NDArray[Any] | None
    ) -> float:
        """scikit-learn's."""
        return float(roc_auc_score(positive, scores, sample_weight=weight))

    def exact(self, scores: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        """T log(1 + u_1 u_2), see ``AUCLoss``."""
        weight = weight.unsqueeze(1)
        logs = [
            (sign * scores / self.temperature + weight.log())
            .masked_fill(labels != label, -torch.inf)
            .logsumexp(0)
            - (weight * (labels == label)).sum(0).log()
            for sign, label in ((1, 0), (-1, 1))
        ]
        return self.temperature * softplus(logs[0] + logs[1])

    def loss(self, labels: NDArray[np.int8]) -> Any:
        """``AUCLoss``."""
        return AUCLoss(labels, temperature=self.temperature)


@dataclass(frozen=True)
class MomentAUC(AUC):
    """The same metric by the paper's objective, moments of sigmoid scores.

    Examples:
        >>> scores, labels = torch.zeros(2, 1), torch.tensor([[1], [0]])
        >>> MomentAUC().exact(scores, labels, torch.ones(2))  # (1 - 0)^2 / 2
        tensor([0.5000])
    """

    def exact(self, scores: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        """See ``objectives.MultiTaskAUC``."""
        h = scores.sigmoid()
        moments = [
            (part / part.sum(0) * power).sum(0)
            for power in (h, h.square())
            for part in (weight.unsqueeze(1) * (labels == label) for label in (1, 0))
        ]
        tasks = torch.arange(labels.shape[1])
        return MultiTaskAUC(len(tasks)).outer(torch.stack(moments, 1), tasks)

    def loss(self, labels: NDArray[np.int8]) -> Any:
        """``MultiTaskAUC`` as a loss."""
        return _MomentLoss(torch.from_numpy(labels))


class _MomentLoss:
    def __init__(self, labels: Tensor) -> None:
        self.labels = labels
        self.objective = MultiTaskAUC(labels.shape[1])
        self.table = TableLoss(self.objective)

    def __call__(self, scores: Tensor, index: Tensor) -> Tensor:
        labels = self.labels[index]
        batch = LabelBatch(torch.arange(labels.shape[1]), scores, labels == 1, labels == 0)
        probe = self.objective.inner(lambda scores: scores, batch)
        # a batch may have no task with both labels
        return self.table(probe) if len(probe.blocks) else 0 * scores.sum()


class _PairGoal(Goal):
    """A metric with an objective of pairs, task by task."""

    def exact(self, scores: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        """The tasks share the number of pairs, which take half the time in single precision."""
        costs, scores, weight = [], scores.float(), weight.float()
        for task in range(labels.shape[1]):
            sides = [(labels[:, task] == label).nonzero().flatten() for label in (1, 0)]
            pairs = len(sides[0]) * (len(sides[0]) + len(sides[1])) * labels.shape[1]
            every = max(1, round((pairs / _PAIRS) ** 0.5))
            anchors, negatives = (side[::every] for side in sides)
            costs.append(self._cost(scores[:, task], anchors, negatives, weight))
        return torch.stack(costs).double()

    @abstractmethod
    def _cost(self, h: Tensor, anchors: Tensor, negatives: Tensor, weight: Tensor) -> Tensor:
        """The objective of one task, from the positions of its samples."""


@dataclass(frozen=True)
class AveragePrecision(_PairGoal):
    """The average precision; a sigmoid, for with a squared hinge a few far samples dominate.

    Examples:
        >>> AveragePrecision().metric(np.array([1.0, 2.0]), np.array([True, False]), None)
        0.5
    """

    def metric(
        self, scores: NDArray[Any], positive: NDArray[np.bool_], weight: NDArray[Any] | None
    ) -> float:
        """scikit-learn's."""
        return float(average_precision_score(positive, scores, sample_weight=weight))

    def _cost(self, h: Tensor, anchors: Tensor, negatives: Tensor, weight: Tensor) -> Tensor:
        """See ``APLoss``; a sample compared with itself counts 1, not l(0) = 1/2."""
        before, after = (
            Sigmoid()(h[others] - h[anchors].unsqueeze(1)) @ weight[others]
            for others in (anchors, negatives)
        )
        before = before + weight[anchors] / 2
        share = weight[anchors] / weight[anchors].sum()
        return -(share * before / (before + after)).sum()

    def loss(self, labels: NDArray[np.int8]) -> Any:
        """``APLoss``."""
        return APLoss(labels, surrogate=Sigmoid())


@dataclass(frozen=True)
class PartialAUC(_PairGoal):
    """The area under the ROC curve up to a false positive rate, as scikit-learn standardizes it.

    Examples:
        >>> goal = PartialAUC(max_fpr=0.5, temperature=0.1)
        >>> goal.metric(np.array([1.0, 2.0]), np.array([False, True]), None)
        1.0
    """

    max_fpr: float
    temperature: float

    def metric(
        self, scores: NDArray[Any], positive: NDArray[np.bool_], weight: NDArray[Any] | None
    ) -> float:
        """scikit-learn's."""
        return float(roc_auc_score(positive, scores, sample_weight=weight, max_fpr=self.max_fpr))

    def _cost(self, h: Tensor, anchors: Tensor, negatives: Tensor, weight: Tensor) -> Tensor:
        """See ``PartialAUCLoss``."""
        costs = SquaredHinge()(h[negatives] - h[anchors].unsqueeze(1)) / self.temperature
        logs = (costs + weight[negatives].log()).logsumexp(1) - weight[negatives].sum().log()
        share = weight[anchors] / weight[anchors].sum()
        return self.temperature * (share * logs).sum()

    def loss(self, labels: NDArray[np.int8]) -> Any:
        """``PartialAUCLoss``."""
        return PartialAUCLoss(labels, temperature=self.temperature)
