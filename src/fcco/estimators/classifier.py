"""Classifiers with scores that are trained to rank: labels, calibration and probabilities."""

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from fcco.estimators.base import CompositionalEstimator
from fcco.estimators.calibration import platt
from fcco.estimators.target import Target

__all__ = ["ScoreClassifier"]

Labels = NDArray[np.intp]

_LARGEST = 2**53
"""Numeric classes are smaller; beyond, floats cannot represent every whole number."""


class ScoreClassifier(ClassifierMixin, CompositionalEstimator):  # type: ignore[misc]
    """One score per class, or one for two classes, converted to log-odds by Platt scaling.

    Scores that rank well have no natural zero. The scaling, fitted to the training samples, gives
    them one and does not change their order. Arguments as for ``CompositionalEstimator``.

    A subclass defines ``_target``, the meaning of the labels for the training.
    """

    classes_: NDArray[Any]
    slopes_: NDArray[np.float64]
    offsets_: NDArray[np.float64]

    @abstractmethod
    def _target(self, labels: Labels) -> Target:
        """The target of the training; ``labels`` are positions in ``classes_``."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train from the beginning.

        Args:
            X: (n, d) features.
            y: (n,) labels.
        """
        features, named = self._validated(X, y, reset=True)
        _check_labels("y", named)
        check_classification_targets(named)
        self.classes_, labels = np.unique(named, return_inverse=True)
        self._check_classes()
        self._fit(features, self._target(labels))
        return self._calibrate(features, labels)

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Take ``partial_steps`` more steps on these samples.

        With the same samples as in the last call, the result equals one longer run, bit for bit.
        The first call sets the scales of the features. There is no early stopping.

        Args:
            X: (n, d) features.
            y: (n,) labels, of two classes at least.
            classes: all classes that will ever occur; needed only in the first call.
        """
        first = not hasattr(self, "network_")
        features, named = self._validated(X, y, reset=first)
        _check_labels("y", named)
        check_classification_targets(named)
        if first:
            if classes is None:
                raise ValueError("classes must be given in the first call of partial_fit")
            _check_labels("classes", np.asarray(classes))
            self.classes_ = np.unique(classes)
        elif classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
            raise ValueError(f"classes are not those of the first call, {self.classes_}")
        self._check_classes()
        labels = self._labels(named)
        if len(np.unique(labels)) < 2:
            raise ValueError("y holds samples of only one class: there is nothing to compare")
        self._partial_fit(features, self._target(labels))
        return self._calibrate(features, labels)

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Log-odds of each class, (n, classes); of the second, (n,), if there are two."""
        odds = self._odds(self._validated(X, reset=False))
        return odds[:, 0] if len(self.classes_) == 2 else odds

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most likely class of each sample."""
        odds = self.decision_function(X)
        labels = (odds > 0).astype(np.intp) if odds.ndim == 1 else odds.argmax(1)
        predicted: NDArray[Any] = self.classes_[labels]
        return predicted

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities, (n, classes): of each class against the rest, divided by their sum."""
        odds = self.decision_function(X)
        if odds.ndim == 1:
            return np.stack([expit(-odds), expit(odds)], axis=1)
        shares: NDArray[np.float64] = expit(odds)
        shares /= shares.sum(1, keepdims=True)
        return shares

    def _odds(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """The log-odds of every column of the network."""
        odds: NDArray[np.float64] = self._scores(features) * self.slopes_ + self.offsets_
        return odds

    def _labels(self, named: NDArray[Any]) -> Labels:
        """Positions in ``classes_``."""
        unknown = np.setdiff1d(named, self.classes_)
        if len(unknown):
            raise ValueError(f"y holds {unknown}, which are not among the classes")
        return np.searchsorted(self.classes_, named)

    def _check_classes(self) -> None:
        if len(self.classes_) < 2:
            raise ValueError(
                f"y holds only one class, {self.classes_}: there is nothing to compare"
            )

    def _calibrate(self, X: NDArray[Any], labels: Labels) -> Self:
        """Refit every line, except those of classes that these samples lack."""
        scores = self._scores(X)
        columns = scores.shape[1]
        slopes, offsets = np.ones(columns), np.zeros(columns)
        if len(getattr(self, "slopes_", ())) == columns:
            slopes, offsets = self.slopes_.copy(), self.offsets_.copy()
        shift = 1 if columns == 1 else 0
        for column in np.unique(labels[labels >= shift]) - shift:
            slopes[column], offsets[column] = platt(scores[:, column], labels == column + shift)
        self.slopes_, self.offsets_ = slopes, offsets
        return self


def _check_labels(name: str, labels: NDArray[Any]) -> None:
    """Classes are strings, booleans or whole numbers; marks of missing values are refused."""
    kind = labels.dtype.kind
    if kind in "cmMV":
        raise ValueError(f"{name} must hold whole numbers, booleans or strings, got {labels.dtype}")
    if kind in "iuf":
        wrong = ~(np.abs(labels.astype(np.float64)) < _LARGEST)
        if wrong.any():
            raise ValueError(
                f"{name} holds {labels[wrong].flat[0]}, which is not a class: numbers must be "
                "below 2**53 in size"
            )
