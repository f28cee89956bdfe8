"""Classification by AUC: one task per class, its samples against the others."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fcco.data import BlockData, TaskData
from fcco.estimators.classifier import Labels, ScoreClassifier
from fcco.estimators.target import Rows, Target, some_of_each
from fcco.metrics import macro_auroc
from fcco.objectives import MultiTaskAUC
from fcco.problem.objective import Objective
from fcco.problem.probe import Probe

__all__ = ["AUCClassifier"]


class AUCClassifier(ScoreClassifier):
    """Maximizes the area under the ROC curve, of two classes or of each class against the rest.

    Args:
        hidden: widths of the hidden layers, or one width; () is a linear model.
        max_steps: steps of ``fit``; the learning rate decays to zero over them.
        learning_rate: the learning rate of the first step.
        weight_decay: decoupled, as in AdamW.
        blocks_per_step: the largest number of classes probed per step; None: 64.
        samples_per_block: samples per class, half of them from the class itself; None: 128.
        early_stopping: hold out samples in ``fit``, stop when their AUC no longer rises, and keep
            the best weights; nothing is held out if that would be fewer than 10 of a class.
        validation_fraction: the fraction that is held out.
        patience: evaluations of the AUC (20 in ``max_steps``) without a rise before it stops.
        partial_steps: steps of each call of ``partial_fit``.
        random_state: seeds the split, the hidden layers and the batches.

    Attributes:
        classes_: the labels, sorted.
        network_: the scoring network, on standardized features.
        slopes_: the slope of the log-odds in each score.
        offsets_: the offsets of the log-odds.
        n_steps_: the number of steps taken.
        history_: ``Record``s of step, objective and held-out AUC.

    Examples:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> model = AUCClassifier(max_steps=100, random_state=0).fit(X, y)
        >>> model.score(X, y) > 0.9
        True
        >>> model.predict_proba(X[:1]).shape
        (1, 3)
    """

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """The area under the ROC curve, not the accuracy; for many classes the mean.

        Classes that ``y`` lacks are left out.

        Args:
            X: (n, d) features.
            y: (n,) labels.
        """
        features, named = self._validated(X, y, reset=False)
        return _macro(self._odds(features), self._members(self._labels(named)))

    def _target(self, labels: Labels) -> Target:
        return _Tasks(self._members(labels))

    def _members(self, labels: Labels) -> NDArray[np.bool_]:
        members: NDArray[np.bool_] = labels[:, None] == np.arange(len(self.classes_))
        return members[:, 1:] if len(self.classes_) == 2 else members


@dataclass(frozen=True, eq=False)
class _Tasks(Target):
    """Members of each class, (n, m)."""

    members: NDArray[np.bool_]
    samples = 128
    shifts = True

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return int(self.members.shape[1])

    def problem(self, inputs: Tensor) -> tuple[BlockData[Any], Objective]:
        data = TaskData(inputs, torch.from_numpy(self.members.copy()), drop_empty=True)
        if data.num_blocks == self.outputs:
            return data, MultiTaskAUC(self.outputs)
        return data, _SomeTasks(data.tasks)

    def metric(self, scores: Tensor) -> float:
        return _macro(scores.numpy(), self.members)

    def held_out(self, fraction: float, random: RandomState) -> Rows:
        first = self.members.argmax(1) if self.outputs > 1 else self.members[:, 0]
        return some_of_each(first, fraction, random)

    def take(self, rows: Rows) -> Self:
        return type(self)(self.members[rows])

    def arrays(self) -> tuple[NDArray[Any], ...]:
        return (self.members,)


class _SomeTasks(MultiTaskAUC):
    """Only the columns of the network for the classes that the samples have."""

    def __init__(self, tasks: Tensor) -> None:
        super().__init__(len(tasks))
        self.tasks = tasks

    def inner(self, model: Any, batch: Any) -> Probe:
        return super().inner(lambda inputs: model(inputs)[:, self.tasks], batch)


def _macro(scores: NDArray[Any], members: NDArray[np.bool_]) -> float:
    there = members.any(0) & ~members.all(0)
    if not there.any():
        raise ValueError("y holds only one class: AUC compares two")
    return macro_auroc(torch.from_numpy(scores[:, there]), torch.from_numpy(members[:, there]))
