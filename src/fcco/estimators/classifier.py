"""Classifiers with scores that are trained to rank: labels, calibration and probabilities."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from fcco.estimators.arguments import check_weight
from fcco.estimators.base import ScoringEstimator
from fcco.estimators.calibration import platt
from fcco.estimators.goals import Goal
from fcco.estimators.labels import Labels

__all__ = ["ScoreClassifier"]

_LARGEST = 2**53
"""Numeric classes are smaller; beyond, floats cannot represent every whole number."""


class ScoreClassifier(ClassifierMixin, ScoringEstimator):  # type: ignore[misc]
    """Log-odds of two classes, of each of several classes, or of each of several tasks.

    Scores of two classes or of tasks that rank well have no natural zero. After training for the
    metric, Platt scaling of the training samples gives them one and does not change their order.

    Args:
        hidden: see ``ScoringEstimator``, as for all arguments that are not named here.
        class_weight: None, "balanced", or a weight for each class, as in ``LogisticRegression``;
            not for several tasks.
        pos_label: of two classes the positive one; None: the second.

    A subclass defines ``_goal``, the metric.
    """

    classes_: NDArray[Any]

    def __init__(
        self,
        hidden: Sequence[int] | int = (),
        *,
        C: float = 1.0,
        class_weight: str | Mapping[Any, float] | None = None,
        pos_label: Any = None,
        max_steps: int = 1000,
        learning_rate: float = 0.03,
        weight_decay: float = 1e-3,
        batch_size: int = 128,
        early_stopping: bool = True,
        validation_fraction: float = 0.2,
        patience: int = 10,
        partial_steps: int = 100,
        verbose: bool = False,
        random_state: int | RandomState | None = None,
    ) -> None:
        super().__init__(
            hidden,
            C=C,
            max_steps=max_steps,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            batch_size=batch_size,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            patience=patience,
            partial_steps=partial_steps,
            verbose=verbose,
            random_state=random_state,
        )
        self.class_weight = class_weight
        self.pos_label = pos_label

    @abstractmethod
    def _goal(self) -> Goal:
        """The metric."""

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train from the beginning.

        Args:
            X: (n, d) features, dense or sparse.
            y: (n,) classes; or (n, tasks) labels, 1, 0, and -1 or NaN where missing.
            sample_weight: (n,), how much each sample counts. The batches of a network are drawn in
                proportion to it.
        """
        features, named, weight = self._data(X, y, sample_weight, reset=True)
        self.multilabel_ = named.ndim == 2
        self.classes_ = np.arange(named.shape[1]) if self.multilabel_ else np.unique(named)
        target = self._target(named, weight)
        self._fit(features, target)
        # a linear model of the first phase is calibrated already
        first_only = len(self.network_) == 1 and len(self.history_) == 1
        return self if first_only else self._calibrate(features, target)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Take ``partial_steps`` more steps on these samples.

        With the same samples as in the last call, the result equals one longer run, bit for bit.
        The first call sets the scales of the features. There is no early stopping.

        Args:
            X: (n, d) features.
            y: as for ``fit``; of two classes at least.
            classes: all classes that will ever occur; needed only in the first call, and not for
                several tasks.
            sample_weight: as for ``fit``.
        """
        first = not hasattr(self, "network_")
        features, named, weight = self._data(X, y, sample_weight, reset=first)
        if first:
            self.multilabel_ = named.ndim == 2
            if self.multilabel_:
                classes = np.arange(named.shape[1])
            if classes is None:
                raise ValueError("classes must be given in the first call of partial_fit")
            _check_labels("classes", np.asarray(classes))
            self.classes_ = np.unique(classes)
        elif classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
            raise ValueError(f"classes are not those of the first call, {self.classes_}")
        target = self._target(named, weight)
        if not target.tasks:
            raise ValueError("y holds samples of only one class: there is nothing to compare")
        return self._partial_fit(features, target)._calibrate(features, target)

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Log-odds of the second of two classes, (n,), or of each task; else those of a softmax."""
        scores = self._scores(self._validated(X, reset=False))
        if self.multilabel_ or len(self.classes_) > 2:
            return scores
        second: NDArray[np.float64] = scores[:, 0] * (1 if self._positive() else -1)
        return second

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most likely class of each sample, or the label of each task."""
        odds = self.decision_function(X)
        if self.multilabel_:
            return (odds > 0).astype(np.intp)
        labels = (odds > 0).astype(np.intp) if odds.ndim == 1 else odds.argmax(1)
        predicted: NDArray[Any] = self.classes_[labels]
        return predicted

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities, (n, classes) or (n, tasks)."""
        odds = self.decision_function(X)
        if odds.ndim == 1:
            return np.stack([expit(-odds), expit(odds)], axis=1)
        chances: NDArray[np.float64] = expit(odds) if self.multilabel_ else softmax(odds, axis=1)
        return chances

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The metric, not the accuracy; of several classes or tasks the mean.

        Classes that ``y`` lacks are left out.

        Args:
            X: (n, d) features.
            y: as for ``fit``.
            sample_weight: (n,), how much each sample counts.
        """
        features, named, weight = self._data(X, y, sample_weight, reset=False)
        target = self._target(named, weight, balanced=False)
        return target.metric(torch.from_numpy(self._scores(features)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _data(
        self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None, *, reset: bool
    ) -> tuple[Any, NDArray[Any], NDArray[np.float64] | None]:
        """Features, labels and weights, checked; samples of weight 0 are left out."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        named: NDArray[Any] = y.toarray() if issparse(y) else np.asarray(y)
        if named.ndim == 2 and named.shape[1] > 1:
            text = named.dtype.kind in "SU"
            named = named if text else np.where(np.isnan(named.astype(np.float64)), -1, named)
            if text or not np.isin(named, (-1, 0, 1)).all():
                raise ValueError("y of several tasks must hold only 1, 0, and -1 where missing")
            features, named = self._validated(X, named, reset=reset, multi_output=True)
        else:
            features, named = self._validated(X, column_or_1d(y, warn=True), reset=reset)
            _check_labels("y", named)
            check_classification_targets(named)
        weight, kept = check_weight(sample_weight, features)
        return features[kept], named[kept], weight

    def _target(
        self, named: NDArray[Any], weight: NDArray[np.float64] | None, *, balanced: bool = True
    ) -> Labels:
        if self.multilabel_ != (named.ndim == 2) or (
            self.multilabel_ and named.shape[1] != len(self.classes_)
        ):
            raise ValueError(f"y must have the form of the first fit, got shape {named.shape}")
        if self.multilabel_:
            if self.class_weight is not None:
                raise ValueError("class_weight is not for several tasks")
            labels = named.astype(np.int8)
            if not ((labels == 1).any(0) & (labels == 0).any(0)).any():
                raise ValueError("y holds only one class in every task: nothing can be compared")
            return Labels(labels, self._goal(), weight=weight)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y holds only one class, {self.classes_}: there is nothing to compare"
            )
        unknown = np.setdiff1d(named, self.classes_)
        if len(unknown):
            raise ValueError(f"y holds {unknown}, which are not among the classes")
        if self.class_weight is not None and balanced:
            each = compute_sample_weight(self.class_weight, named)
            if (each <= 0).any():
                raise ValueError(f"class_weight must be above 0, got {self.class_weight}")
            weight = each if weight is None else each * weight
        members = (named[:, None] == self.classes_).astype(np.int8)
        if len(self.classes_) == 2:
            place = int(self._positive())
            return Labels(members[:, place : place + 1], self._goal(), weight=weight)
        return Labels(members, self._goal(), exclusive=True, weight=weight)

    def _positive(self) -> bool:
        """Whether the second of two classes is the positive one."""
        if self.pos_label is None:
            return True
        if self.pos_label not in self.classes_:
            raise ValueError(f"pos_label {self.pos_label!r} is not among {self.classes_}")
        return bool(self.classes_[1] == self.pos_label)

    def _calibrate(self, X: Any, target: Labels) -> Self:
        """Scale and shift the scores of every task that these samples have both labels of."""
        if target.exclusive:
            return self
        scores, (weights, biases) = self._scores(X), self.network_[-1].parameters()
        for task in target.tasks:
            known = target.labels[:, task] >= 0
            weight = None if target.weight is None else target.weight[known]
            slope, offset = platt(scores[known, task], target.labels[known, task] == 1, weight)
            with torch.no_grad():
                weights[task] *= slope
                biases[task] = slope * biases[task] + offset
        return self


def _check_labels(name: str, labels: NDArray[Any]) -> None:
    """Classes are strings, booleans or whole numbers; marks of missing values are refused."""
    kind = labels.dtype.kind
    if kind in "cmMV":
        raise ValueError(f"{name} must hold whole numbers, booleans or strings, got {labels.dtype}")
    if kind == "O" and any(label is None for label in labels.flat):
        raise ValueError(f"{name} holds None, which is not a class")
    if kind in "iuf":
        wrong = ~(np.abs(labels.astype(np.float64)) < _LARGEST)
        if wrong.any():
            raise ValueError(
                f"{name} holds {labels[wrong].flat[0]}, which is not a class: numbers must be "
                "below 2**53 in size"
            )
