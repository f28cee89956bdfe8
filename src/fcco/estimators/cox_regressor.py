"""Cox regression with a linear or deep model, whose scores are log risks."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_consistent_length
from torch import Tensor

from fcco.estimators.base import ScoringEstimator, unchanged_on_error
from fcco.estimators.hazard import StepFunction
from fcco.estimators.target import Phase, Rows, Target, balanced_folds
from fcco.estimators.validation import read_sample_weight, require_y
from fcco.losses import ScoreLoss
from fcco.objectives import Cox

__all__ = ["CoxRegressor"]


@dataclass(frozen=True, eq=False)
class Outcomes(Target):
    """The times of subjects, and whether each is the time of an event."""

    times: NDArray[Any]
    events: NDArray[np.bool_]
    ties: str

    def phases(self) -> Sequence[Phase]:
        """Return the only phase, which is the partial likelihood."""
        return (ScoreLoss(self._objective(), sample_weight=self.weight),)

    def metric(self, scores: Tensor) -> float:
        """Return Harrell's concordance."""
        return self._objective().metric(scores, self.weight)

    def folds(self, count: int, random: RandomState) -> Rows | None:
        """Return folds with equal shares of subjects with an event."""
        return balanced_folds(self.events, count, random)

    def baseline_hazard(self, scores: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the distinct times, and Breslow's cumulative hazard at these times."""
        times, hazard = self._objective().baseline_hazard(scores, self.weight)
        return times.double().numpy(), hazard.numpy()

    def _objective(self) -> Cox:
        return Cox(self.times, self.events, ties=self.ties)


@dataclass(eq=False, repr=False)
class CoxRegressor(ScoringEstimator):
    """A regressor that maximizes Cox's partial likelihood of a linear or deep log risk.

    Args:
        hidden: the widths of the hidden layers, or one width; () gives a linear model.
        ties: the treatment of equal times, "efron" or "breslow".
        C: the inverse of the ridge of a linear model; ``inf`` means no ridge. With m events among n
            subjects, the model minimizes C n / m times the sum over the events of the negative log
            partial likelihood, plus half the squared norm of the weights of standardized features.
        max_steps: the number of steps that ``fit`` takes with a network. The learning rate falls to
            0 over these steps.
        learning_rate: the learning rate of the first step.
        weight_decay: the decoupled weight decay of a network, as in AdamW.
        batch_size: the number of samples per step.
        early_stopping: whether a network holds out subjects in ``fit``, stops when their
            concordance no longer rises, and keeps the best weights. Nothing is held out if that
            would be fewer than 10 subjects with or without an event.
        validation_fraction: the fraction that is held out.
        patience: the number of evaluations of the metric (20 in ``max_steps``) without a rise after
            which training stops.
        partial_steps: the number of steps of each call of ``partial_fit``.
        verbose: whether to print each entry of the history.
        random_state: the seed of the split, the hidden layers and the batches.

    Attributes:
        coef_: (1, features), the coefficients of a linear model.
        intercept_: (1,), the intercept of a linear model.
        cum_baseline_hazard_: Breslow's cumulative baseline hazard, a ``StepFunction`` of time.
        unique_times_: the distinct times of the training set.
        network_: the scoring network, on standardized features.
        n_steps_: the number of steps taken.
        history_: ``Record``s of step, objective and held-out concordance.

    Examples:
        >>> random = np.random.RandomState(0)
        >>> X = random.normal(size=(200, 3))
        >>> times = random.exponential(np.exp(-X[:, 0]))
        >>> y = np.stack([np.minimum(times, 2.0), times < 2.0], axis=1)
        >>> model = CoxRegressor().fit(X, y)
        >>> model.score(X, y) > 0.65
        True
        >>> model.predict_survival_function(X[:2])[0]([0.0]).round(3)
        array([1.])
    """

    _: KW_ONLY
    ties: str = "efron"

    @unchanged_on_error
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train the model from the beginning.

        Args:
            X: (n, d), the features.
            y: (n,), a structured array with a boolean field (event observed) and a numeric field
                (time of event or censoring), as in scikit-survival; or (n, 2), with the columns
                time and event.
            sample_weight: (n,), how much each subject counts. With Breslow's ties, a weight of 2 is
                the same as the subject twice. Efron's ties are weighted as in R and lifelines.
        """
        features, target = self._read(X, y, sample_weight, reset=True)
        return self._fit(features, target)._set_baseline(features, target)

    @unchanged_on_error
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Take ``partial_steps`` more steps on these subjects, which form their own risk sets.

        With the same subjects as in the last call, the result equals one longer run, bit for bit.
        The first call sets the scales of the features. There is no early stopping.

        Args:
            X: (n, d), the features.
            y: the times and events, as for ``fit``.
            sample_weight: (n,), how much each subject counts, as for ``fit``.
        """
        first = not hasattr(self, "network_")
        features, target = self._read(X, y, sample_weight, reset=first)
        return self._partial_fit(features, target)._set_baseline(features, target)

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the log risk of each subject, (n,); a higher risk means an earlier event."""
        return self._scores(self._validated(X, reset=False))[:, 0]

    def predict_cumulative_hazard_function(
        self, X: ArrayLike, return_array: bool = False
    ) -> NDArray[Any]:
        """Return the cumulative hazard of each subject, which is the baseline times exp(log risk).

        Args:
            X: (n, d), the features.
            return_array: whether to return the values at ``unique_times_``, (n, times), instead of
                n functions.
        """
        log_risks = self.predict(X)
        # In logarithms, so that a large risk times a baseline of 0 is 0, not NaN.
        with np.errstate(divide="ignore", over="ignore"):
            values = np.exp(log_risks[:, None] + np.log(self.cum_baseline_hazard_.y))
        return values if return_array else _functions(self.unique_times_, values, 0.0)

    def predict_survival_function(self, X: ArrayLike, return_array: bool = False) -> NDArray[Any]:
        """Return the probability of no event up to each time, exp of minus the cumulative hazard.

        The arguments are those of ``predict_cumulative_hazard_function``.
        """
        values = np.exp(-self.predict_cumulative_hazard_function(X, return_array=True))
        return values if return_array else _functions(self.unique_times_, values, 1.0)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return Harrell's concordance index.

        Args:
            X: (n, d), the features.
            y: the times and events, as for ``fit``.
            sample_weight: (n,), the weights; a pair counts by the product of its two weights.
        """
        features, target = self._read(X, y, sample_weight, reset=False)
        return target.metric(torch.from_numpy(self._scores(features)))

    def _read(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, *, reset: bool
    ) -> tuple[Any, Outcomes]:
        """Check features and outcomes; subjects of weight 0 are left out."""
        if self.ties not in ("efron", "breslow"):
            raise ValueError(f'ties must be "efron" or "breslow", got {self.ties!r}')
        require_y(self, y)
        features = self._validated(X, reset=reset)
        times, events = read_outcomes(y)
        check_consistent_length(features, times)
        weight, kept = read_sample_weight(sample_weight, features)
        if not events[kept].any():
            raise ValueError("y: no event was observed, only censoring")
        return features[kept], Outcomes(times, events, self.ties, weight=weight).take(kept)

    def _set_baseline(self, X: Any, target: Outcomes) -> Self:
        times, hazard = target.baseline_hazard(torch.from_numpy(self._scores(X)))
        self.cum_baseline_hazard_ = StepFunction(times, hazard, before=0.0)
        self.unique_times_ = self.cum_baseline_hazard_.x
        return self


def read_outcomes(y: ArrayLike) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return times and events from either form of y; times in whole numbers stay exact.

    Examples:
        >>> read_outcomes([[3.0, 1], [4.0, 0]])
        (array([3., 4.]), array([ True, False]))
        >>> read_outcomes(np.array([(True, 3.0)], dtype=[("seen", bool), ("days", float)]))
        (array([3.]), array([ True]))
    """
    y = np.asarray(y)
    if y.dtype.names is not None:
        # As in scikit-survival, the fields may have any names: their types tell them apart.
        kinds = {y.dtype[name].kind: name for name in y.dtype.names}
        numbers = [name for name in y.dtype.names if y.dtype[name].kind in "fiu"]
        if len(y.dtype.names) != 2 or "b" not in kinds or len(numbers) != 1 or y.ndim != 1:
            raise ValueError(
                "y must have two fields, a boolean (event) and a number (time), got "
                f"{y.dtype} of shape {y.shape}"
            )
        times, events = _exact(y[numbers[0]]), y[kinds["b"]]
    else:
        if y.ndim != 2 or y.shape[1] != 2:
            raise ValueError(
                "y must be structured (event, time), or have shape (n, 2), columns time and "
                f"event, got shape {y.shape}"
            )
        if y.dtype.kind in "cmMSU":
            raise ValueError(f"y must hold real numbers, got {y.dtype}")
        times, flags = _exact(y).T
        if not np.isin(flags, (0, 1)).all():
            raise ValueError("y: the second column, event, must hold only 0 and 1")
        events = flags == 1
    wrong = ~(np.isfinite(times) & (times >= 0))
    if wrong.any():
        row = int(wrong.argmax())
        got = "NaN" if np.isnan(times[row]) else times[row]
        raise ValueError(f"y: times must be finite and not negative, got {got} in row {row}")
    return np.ascontiguousarray(times), np.ascontiguousarray(events)


def _exact(numbers: NDArray[Any]) -> NDArray[Any]:
    """Convert to float64, except for whole numbers, which beyond 2^53 would become equal times."""
    return numbers if numbers.dtype.kind in "iu" else numbers.astype(np.float64)


def _functions(times: NDArray[Any], values: NDArray[Any], before: float) -> NDArray[Any]:
    functions = np.empty(len(values), dtype=object)
    # As in scikit-survival, the result is an array of functions, one per subject.
    functions[:] = [StepFunction(times, each, before) for each in values]
    return functions
