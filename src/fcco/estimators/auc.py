"""Classification by AUC."""

from fcco.estimators.classifier import ScoreClassifier
from fcco.estimators.goals import AUC, Goal

__all__ = ["AUCClassifier"]


class AUCClassifier(ScoreClassifier):
    """Maximizes the area under the ROC curve, of two classes, of each class against the rest, or of
    each of several tasks.

    Args:
        hidden: widths of the hidden layers, or one width; () is a linear model.
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

    def _goal(self) -> Goal:
        return AUC()
