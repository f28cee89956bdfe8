"""Classification by average precision, for few positives."""

from fcco.estimators.classifier import ScoreClassifier
from fcco.estimators.goals import AveragePrecision, Goal

__all__ = ["APClassifier"]


class APClassifier(ScoreClassifier):
    """Maximizes the average precision of the positive class, or its mean over classes or tasks.

    Args:
        hidden: widths of the hidden layers, or one width; () is a linear model.
        C: the inverse of the ridge of a linear model, as in ``LogisticRegression``.
        class_weight: None, "balanced", or a weight for each class.
        pos_label: of two classes the positive one; None: the second.
        max_steps: steps of a network's ``fit``; the learning rate decays to zero over them.
        learning_rate: the learning rate of the first step.
        weight_decay: of a network, decoupled, as in AdamW.
        batch_size: samples per step.
        early_stopping: hold out samples, and keep only what raises their average precision; see
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
        history_: ``Record``s of step, objective and held-out average precision.

    Examples:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(weights=[0.9], class_sep=2.0, random_state=0)
        >>> model = APClassifier(random_state=0).fit(X, y)
        >>> model.score(X, y) > 0.9
        True
    """

    def _goal(self) -> Goal:
        return AveragePrecision()
