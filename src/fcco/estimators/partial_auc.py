"""Classification by partial AUC, for few false positives."""

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.random import RandomState

from fcco.estimators.classifier import ScoreClassifier
from fcco.estimators.goals import Goal, PartialAUC

__all__ = ["PartialAUCClassifier"]


class PartialAUCClassifier(ScoreClassifier):
    """Maximizes the area under the ROC curve up to a false positive rate.

    Args:
        hidden: widths of the hidden layers, or one width; () is a linear model.
        max_fpr: the false positive rate, in (0, 1].
        temperature: of the soft maximum over the negatives; towards 0 only the hardest negative of
            each positive counts.
        C: the inverse of the ridge of a linear model, as in ``LogisticRegression``.
        class_weight: None, "balanced", or a weight for each class.
        pos_label: of two classes the positive one; None: the second.
        max_steps: steps of a network's ``fit``; the learning rate decays to zero over them.
        learning_rate: the learning rate of the first step.
        weight_decay: of a network, decoupled, as in AdamW.
        batch_size: samples per step.
        early_stopping: hold out samples, and keep only what raises their partial AUC; see
            ``fcco.estimators.base.ScoringEstimator``.
        validation_fraction: the fraction that is held out.
        patience: evaluations of the metric (20 in ``max_steps``) without a rise before it stops.
        partial_steps: steps of each call of ``partial_fit``.
        verbose: whether to print each entry of the history.
        random_state: seeds the split, the hidden layers and the batches.

    Attributes:
        classes_: the labels, sorted; the numbers of the tasks if there are several.
        coef_: (outputs, features), of a linear model.
        intercept_: (outputs,), of a linear model.
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

    def __init__(
        self,
        hidden: Sequence[int] | int = (),
        *,
        max_fpr: float = 0.1,
        temperature: float = 1.0,
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
            class_weight=class_weight,
            pos_label=pos_label,
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
        self.max_fpr = max_fpr
        self.temperature = temperature

    def _goal(self) -> Goal:
        return PartialAUC(self.max_fpr, self.temperature)
