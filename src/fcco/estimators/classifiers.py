"""Classifiers that are trained to rank, by AUC, average precision or partial AUC."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from fcco.estimators.base import ScoringEstimator, unchanged_on_error
from fcco.estimators.calibration import platt
from fcco.estimators.class_target import ClassTarget
from fcco.estimators.validation import Weight, missing, read_sample_weight, require_y, take
from fcco.objectives import AUC, AveragePrecision, MultiTaskAUC, PartialAUC

__all__ = ["APClassifier", "AUCClassifier", "PartialAUCClassifier"]

_LARGEST = 2**53
"""Upper bound of numeric classes, beyond which floats cannot represent every whole number."""


@dataclass(eq=False, repr=False)
class ScoreClassifier(ClassifierMixin, ScoringEstimator):  # type: ignore[misc]
    """Base class of classifiers that score two classes, several classes, or several tasks.

    Scores that are trained to rank have no natural zero. So with two classes or with tasks, the
    scores are calibrated after training, by Platt scaling on the training samples. This does not
    change their order.

    Args:
        hidden: the widths of the hidden layers. All arguments that are not listed here are those
            of ``ScoringEstimator``.
        class_weight: None, "balanced", or a weight for each class, as in ``LogisticRegression``.
            It cannot be used with several tasks.
        pos_label: the positive one of two classes, by default the second.
    """

    _: KW_ONLY
    class_weight: str | Mapping[Any, float] | None = None
    pos_label: Any = None

    @property
    def coef_(self) -> NDArray[np.float64]:
        """(outputs, features), the coefficients of ``decision_function`` of a linear model."""
        return super().coef_ * self._sign()

    @property
    def intercept_(self) -> NDArray[np.float64]:
        """(outputs,), the intercepts of ``decision_function`` of a linear model."""
        return super().intercept_ * self._sign()

    @abstractmethod
    def _metric(self) -> tuple[Callable[..., Any], Callable[..., float]]:
        """Return the objective as a function of labels, and scikit-learn's metric of one task."""

    @unchanged_on_error
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train the model from the beginning.

        Args:
            X: (n, d), the features, dense or sparse.
            y: (n,), classes; or (n, tasks), labels that are 1, 0, or -1 or NaN where missing.
            sample_weight: (n,), how much each sample counts. The batches of a network are drawn in
                proportion to it.
        """
        features, named, weight = self._read(X, y, sample_weight, reset=True)
        self.multilabel_ = named.ndim == 2
        self.classes_ = np.arange(named.shape[1]) if self.multilabel_ else np.unique(named)
        target = self._target(named, weight)
        self._fit(features, target)
        # A linear model that stopped after the first phase is a logistic regression, which is
        # calibrated already.
        first_only = len(self.network_) == 1 and len(self.history_) == 1
        return self if first_only else self._calibrate(features, target)

    @unchanged_on_error
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
            X: (n, d), the features.
            y: the labels, as for ``fit``, with samples of at least two classes.
            classes: all classes that will ever occur. They are needed only in the first call, and
                not for several tasks.
            sample_weight: (n,), how much each sample counts, as for ``fit``.
        """
        first = not hasattr(self, "network_")
        features, named, weight = self._read(X, y, sample_weight, reset=first)
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
        """Return log-odds: (n,) of the second of two classes, or (n, tasks), or (n, classes)."""
        scores = self._scores(self._validated(X, reset=False))
        if self.multilabel_ or len(self.classes_) > 2:
            return scores
        second: NDArray[np.float64] = scores[:, 0] * self._sign()
        return second

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most likely class of each sample, or the label of each task."""
        odds = self.decision_function(X)
        if self.multilabel_:
            return (odds > 0).astype(np.intp)
        places = (odds > 0).astype(np.intp) if odds.ndim == 1 else odds.argmax(1)
        predicted: NDArray[Any] = self.classes_[places]
        return predicted

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return probabilities, (n, classes) or (n, tasks)."""
        odds = self.decision_function(X)
        if odds.ndim == 1:
            return np.stack([expit(-odds), expit(odds)], axis=1)
        chances: NDArray[np.float64] = expit(odds) if self.multilabel_ else softmax(odds, axis=1)
        return chances

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the metric, not the accuracy; for several classes or tasks it is the mean.

        Classes that do not occur in ``y`` are left out.

        Args:
            X: (n, d), the features.
            y: the labels, as for ``fit``.
            sample_weight: (n,), how much each sample counts.
        """
        features, named, weight = self._read(X, y, sample_weight, reset=False)
        target = self._target(named, weight, balanced=False)
        return target.metric(torch.from_numpy(self._scores(features)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _read(
        self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None, *, reset: bool
    ) -> tuple[Any, NDArray[Any], Weight]:
        """Check features, labels and weights; samples of weight 0 are left out."""
        require_y(self, y)
        named: NDArray[Any] = y.toarray() if issparse(y) else np.asarray(y)
        if named.ndim == 2 and named.shape[1] > 1:
            named = np.where(missing(named), np.nan, named) if named.dtype == object else named
            text = named.dtype.kind in "SU"
            named = named if text else np.where(np.isnan(named.astype(np.float64)), -1, named)
            if text or not np.isin(named, (-1, 0, 1)).all():
                raise ValueError("y of several tasks must hold only 1, 0, and -1 where missing")
            features, named = self._validated(X, named, reset=reset, multi_output=True)
        else:
            _check_none_missing("y", named)
            features, named = self._validated(X, column_or_1d(y, warn=True), reset=reset)
            _check_labels("y", named)
            check_classification_targets(named)
        weight, kept = read_sample_weight(sample_weight, features)
        return features[kept], named[kept], take(weight, kept)

    def _target(self, named: NDArray[Any], weight: Weight, *, balanced: bool = True) -> ClassTarget:
        """Return the target of checked labels; ``balanced`` applies ``class_weight``."""
        tasks = named.shape[1] if named.ndim == 2 else None
        if tasks != (len(self.classes_) if self.multilabel_ else None):
            raise ValueError(f"y must have the form of the first fit, got shape {named.shape}")
        objective, metric = self._metric()
        if self.multilabel_:
            if self.class_weight is not None:
                raise ValueError("class_weight is not for several tasks")
            target = ClassTarget(named.astype(np.int8), objective, metric, weight=weight)
            if not target.tasks:
                raise ValueError("y holds only one class in every task: nothing can be compared")
            return target
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
        # One column per class; two classes need only the column of the positive one.
        members = (named[:, None] == self.classes_).astype(np.int8)
        exclusive = len(self.classes_) > 2
        if not exclusive:
            members = members[:, [int(self._second_is_positive())]]
        return ClassTarget(members, objective, metric, exclusive, weight=weight)

    def _second_is_positive(self) -> bool:
        """Return whether the second of two classes is the positive one."""
        if self.pos_label is None:
            return True
        if self.pos_label not in self.classes_:
            raise ValueError(f"pos_label {self.pos_label!r} is not among {self.classes_}")
        return bool(self.classes_[1] == self.pos_label)

    def _sign(self) -> int:
        """Return -1 if the model scores the first of two classes, because it is positive, or 1."""
        two = not self.multilabel_ and len(self.classes_) == 2
        return -1 if two and not self._second_is_positive() else 1

    def _calibrate(self, X: Any, target: ClassTarget) -> Self:
        """Calibrate the scores of every task of which these samples have both labels."""
        if target.exclusive:
            return self
        scores, (weights, biases) = self._scores(X), self.network_[-1].parameters()
        for task in target.tasks:
            known = target.labels[:, task] >= 0
            positive = target.labels[known, task] == 1
            # The line becomes a part of the last layer, so that the model stays one network.
            slope, offset = platt(scores[known, task], positive, take(target.weight, known))
            with torch.no_grad():
                weights[task] *= slope
                biases[task] = slope * biases[task] + offset
        return self


@dataclass(eq=False, repr=False)
class AUCClassifier(ScoreClassifier):
    """A classifier that maximizes the area under the ROC curve (AUC).

    With more than two classes it is the AUC of each class against the rest, and with several tasks
    the AUC of each task.

    Args:
        hidden: the widths of the hidden layers, or one width; () gives a linear model.
        form: the objective of the second phase. "exponential" is ``fcco.objectives.AUC``, and
            "moments" is the paper's, ``fcco.objectives.MultiTaskAUC``.
        C: the inverse of the ridge of a linear model, as in ``LogisticRegression``.
        class_weight: None, "balanced", or a weight for each class, as in ``LogisticRegression``.
        pos_label: the positive one of two classes, by default the second.
        max_steps: the number of steps that ``fit`` takes with a network. The learning rate falls to
            0 over these steps.
        learning_rate: the learning rate of the first step.
        weight_decay: the decoupled weight decay of a network, as in AdamW.
        batch_size: the number of samples per step.
        early_stopping: whether to hold out samples and keep only what raises their AUC; see
            ``fcco.estimators.base.ScoringEstimator``.
        validation_fraction: the fraction that is held out.
        patience: the number of evaluations of the AUC (20 in ``max_steps``) without a rise, after
            which training stops.
        partial_steps: the number of steps of each call of ``partial_fit``.
        verbose: whether to print each entry of the history.
        random_state: the seed of the split, the hidden layers and the batches.

    Attributes:
        classes_: the labels, sorted; the numbers of the tasks if there are several.
        coef_: (outputs, features), the coefficients of a linear model.
        intercept_: (outputs,), the intercepts of a linear model.
        network_: the scoring network, on standardized features.
        n_steps_: the number of steps taken.
        history_: ``Record``s of step, objective and held-out AUC.

    Examples:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> model = AUCClassifier(random_state=0).fit(X, y)
        >>> model.score(X, y) > 0.9
        True
        >>> model.predict_proba(X[:1]).shape
        (1, 3)
    """

    _: KW_ONLY
    form: str = "exponential"

    def _metric(self) -> tuple[Callable[..., Any], Callable[..., float]]:
        objectives: dict[str, Callable[..., Any]] = {"exponential": AUC, "moments": MultiTaskAUC}
        if self.form not in objectives:
            raise ValueError(f'form must be "exponential" or "moments", got {self.form!r}')
        return objectives[self.form], roc_auc_score


class APClassifier(ScoreClassifier):
    """A classifier that maximizes the average precision, or its mean over classes or tasks.

    Args:
        hidden: the widths of the hidden layers, or one width; () gives a linear model.
        C: the inverse of the ridge of a linear model, as in ``LogisticRegression``.
        class_weight: None, "balanced", or a weight for each class, as in ``LogisticRegression``.
        pos_label: the positive one of two classes, by default the second.
        max_steps: the number of steps that ``fit`` takes with a network. The learning rate falls to
            0 over these steps.
        learning_rate: the learning rate of the first step.
        weight_decay: the decoupled weight decay of a network, as in AdamW.
        batch_size: the number of samples per step.
        early_stopping: whether to hold out samples and keep only what raises their average
            precision, see ``fcco.estimators.base.ScoringEstimator``.
        validation_fraction: the fraction that is held out.
        patience: the number of evaluations of the metric (20 in ``max_steps``) without a rise after
            which training stops.
        partial_steps: the number of steps of each call of ``partial_fit``.
        verbose: whether to print each entry of the history.
        random_state: the seed of the split, the hidden layers and the batches.

    Attributes:
        classes_: the labels, sorted; the numbers of the tasks if there are several.
        coef_: (outputs, features), the coefficients of a linear model.
        intercept_: (outputs,), the intercepts of a linear model.
        network_: the scoring network, on standardized features.
        n_steps_: the number of steps taken.
        history_: ``Record``s of step, objective and held-out average precision.

    Examples:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(weights=[0.9], class_sep=2.0, random_state=0)
        >>> model = APClassifier(random_state=0).fit(X, y)
        >>> model.score(X, y) > 0.9
        True
    """

    def _metric(self) -> tuple[Callable[..., Any], Callable[..., float]]:
        return AveragePrecision, average_precision_score


@dataclass(eq=False, repr=False)
class PartialAUCClassifier(ScoreClassifier):
    """A classifier that maximizes the area under the ROC curve up to a false positive rate.

    Args:
        hidden: the widths of the hidden layers, or one width; () gives a linear model.
        max_fpr: the false positive rate, in (0, 1].
        temperature: the temperature of the soft maximum over the negatives. With a small value
            only the hardest negative of each positive counts.
        C: the inverse of the ridge of a linear model, as in ``LogisticRegression``.
        class_weight: None, "balanced", or a weight for each class, as in ``LogisticRegression``.
        pos_label: the positive one of two classes, by default the second.
        max_steps: the number of steps that ``fit`` takes with a network. The learning rate falls to
            0 over these steps.
        learning_rate: the learning rate of the first step.
        weight_decay: the decoupled weight decay of a network, as in AdamW.
        batch_size: the number of samples per step.
        early_stopping: whether to hold out samples and keep only what raises their partial AUC; see
            ``fcco.estimators.base.ScoringEstimator``.
        validation_fraction: the fraction that is held out.
        patience: the number of evaluations of the metric (20 in ``max_steps``) without a rise after
            which training stops.
        partial_steps: the number of steps of each call of ``partial_fit``.
        verbose: whether to print each entry of the history.
        random_state: the seed of the split, the hidden layers and the batches.

    Attributes:
        classes_: the labels, sorted; the numbers of the tasks if there are several.
        coef_: (outputs, features), the coefficients of a linear model.
        intercept_: (outputs,), the intercepts of a linear model.
        network_: the scoring network, on standardized features.
        n_steps_: the number of steps taken.
        history_: ``Record``s of step, objective and held-out partial AUC.

    Examples:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(class_sep=2.0, random_state=0)
        >>> model = PartialAUCClassifier(max_fpr=0.2, random_state=0).fit(X, y)
        >>> model.score(X, y) > 0.9  # as scikit-learn standardizes it: 0.5 is chance
        True
    """

    _: KW_ONLY
    max_fpr: float = 0.1
    temperature: float = 1.0

    def _metric(self) -> tuple[Callable[..., Any], Callable[..., float]]:
        objective = partial(PartialAUC, temperature=self.temperature, max_fpr=self.max_fpr)
        return objective, partial(roc_auc_score, max_fpr=self.max_fpr)


def _check_none_missing(name: str, labels: NDArray[Any]) -> None:
    """Check that no class is None, NaN or pandas' NA, which cannot be compared with others."""
    if labels.dtype == object:
        wrong = missing(labels)
        if wrong.any():
            raise ValueError(f"{name} holds {labels[wrong][0]}, which is not a class")


def _check_labels(name: str, labels: NDArray[Any]) -> None:
    """Check that classes are strings, booleans or whole numbers, and that none is missing."""
    kind = labels.dtype.kind
    if kind in "cmMV":
        raise ValueError(f"{name} must hold whole numbers, booleans or strings, got {labels.dtype}")
    _check_none_missing(name, labels)
    if kind in "iuf":
        wrong = ~(np.abs(labels.astype(np.float64)) < _LARGEST)
        if wrong.any():
            raise ValueError(
                f"{name} holds {labels[wrong].flat[0]}, which is not a class: numbers must be "
                "below 2**53 in size"
            )
