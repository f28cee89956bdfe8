"""Classification by average precision, for few positives."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fcco.data import AnchorData, BlockData
from fcco.estimators.classifier import Labels, ScoreClassifier
from fcco.estimators.target import Rows, Target, some_of_each
from fcco.metrics import macro_average_precision
from fcco.objectives import AveragePrecision, Sigmoid
from fcco.problem.objective import Objective

__all__ = ["APClassifier"]


class APClassifier(ScoreClassifier):
    """Maximizes the average precision of two classes; the second class is the positive one.

    Args:
        hidden: widths of the hidden layers, or one width; () is a linear model.
        max_steps: steps of ``fit``; the learning rate decays to zero over them.
        learning_rate: the learning rate of the first step.
        weight_decay: decoupled, as in AdamW.
        blocks_per_step: the largest number of positives probed per step; None: 64.
        samples_per_block: samples that each is compared with, half of them positive; None: 512.
        early_stopping: hold out samples in ``fit``, stop when their average precision no longer
            rises, and keep the best weights; nothing is held out if that would be fewer than 10 of
            a class.
        validation_fraction: the fraction that is held out.
        patience: evaluations of the metric (20 in ``max_steps``) without a rise before it stops.
        partial_steps: steps of each call of ``partial_fit``.
        random_state: seeds the split, the hidden layers and the batches.

    Attributes:
        classes_: the two labels, sorted.
        network_: the scoring network, on standardized features.
        slopes_: the slope of the log-odds in the score.
        offsets_: the offset of the log-odds.
        n_steps_: the number of steps taken.
        history_: ``Record``s of step, objective and held-out average precision.

    Examples:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(weights=[0.9], class_sep=2.0, random_state=0)
        >>> model = APClassifier(max_steps=100, random_state=0).fit(X, y)
        >>> model.score(X, y) > 0.9
        True
    """

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """The average precision, not the accuracy.

        Args:
            X: (n, d) features.
            y: (n,) labels, of both classes.
        """
        features, named = self._validated(X, y, reset=False)
        odds = torch.from_numpy(self._odds(features)[:, 0])
        positive = self._labels(named) == 1
        if positive.all() or not positive.any():
            raise ValueError("y holds only one class: average precision compares two")
        return macro_average_precision(odds, torch.from_numpy(positive))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _check_classes(self) -> None:
        super()._check_classes()
        if len(self.classes_) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass: "
                f"it has {len(self.classes_)} classes"
            )

    def _target(self, labels: Labels) -> Target:
        return _Positives(labels == 1)


@dataclass(frozen=True, eq=False)
class _Positives(Target):
    """Which of n samples are positive."""

    positive: NDArray[np.bool_]
    samples = 512  # shared by all anchors, so that they cost little

    def problem(self, inputs: Tensor) -> tuple[BlockData[Any], Objective]:
        data = AnchorData.average_precision(inputs, torch.from_numpy(self.positive.copy()))
        # a sigmoid, because with a squared hinge a few far samples dominate all others
        return data, AveragePrecision(data.num_blocks, len(inputs), surrogate=Sigmoid())

    def metric(self, scores: Tensor) -> float:
        return macro_average_precision(scores[:, 0], torch.from_numpy(self.positive))

    def held_out(self, fraction: float, random: RandomState) -> Rows:
        return some_of_each(self.positive, fraction, random)

    def take(self, rows: Rows) -> Self:
        return type(self)(self.positive[rows])

    def arrays(self) -> tuple[NDArray[Any], ...]:
        return (self.positive,)
