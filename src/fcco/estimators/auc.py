"""Classification by AUC."""

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.random import RandomState

from fcco.estimators.classifier import ScoreClassifier
from fcco.estimators.goals import AUC, Goal, MomentAUC

__all__ = ["AUCClassifier"]


class AUCClassifier(ScoreClassifier):
    """Maximizes the area under the ROC curve, of two classes, of each class against the rest, or of
    each of several tasks.

    Args:
        hidden: widths of the hidden layers, or one width; () is a linear model.
        form: of the second objective: "exponential", as ``fcco.losses.AUCLoss``, or "moments", the
            paper's, as ``fcco.objectives.MultiTaskAUC``.
        C: the inverse of the ridge of a linear model, as in ``LogisticRegression``.
        class_weight: None, "balanced", or a weight for each class.
        pos_label: of two classes the positive one; None: the second.
        max_steps: steps of a network's ``fit``; the learning rate decays to zero over them.
        learning_rate: the learning rate of the first step.
        weight_decay: of a network, decoupled, as in AdamW.
        batch_size: samples per step.
        early_stopping: hold out samples, and keep only what raises their AUC; see
            ``fcco.estimators.base.ScoringEstimator``.
        validation_fraction: the fraction that is held out.
        patience: evaluations of the AUC (20 in ``max_steps``) without a rise before it stops.
        partial_steps: steps of each call of ``partial_fit``.
        verbose: whether to print each entry of the history.
        random_state: seeds the split, the hidden layers and the batches.

    Attributes:
        classes_: the labels, sorted; the numbers of the tasks if there are several.
        coef_: (outputs, features), of a linear model.
        intercept_: (outputs,), of a linear model.
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

    def __init__(
        self,
        hidden: Sequence[int] | int = (),
        *,
        form: str = "exponential",
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
        self.form = form

    def _goal(self) -> Goal:
        goals = {"exponential": AUC, "moments": MomentAUC}
        if self.form not in goals:
            raise ValueError(f'form must be "exponential" or "moments", got {self.form!r}')
        return goals[self.form]()
