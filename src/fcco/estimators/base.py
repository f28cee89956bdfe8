"""The common base class of all estimators: settings, features, the model and its training."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from functools import wraps
from math import cos, pi
from typing import Any, NamedTuple, Self, TypeVar, cast

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from fcco.estimators.features import LARGEST, Standardized, first_wrong
from fcco.estimators.linear import fit_linear, linear_scores
from fcco.estimators.network import Training, build_network, network_scores
from fcco.estimators.target import Target
from fcco.estimators.validation import check_settings, read_widths
from fcco.schedules.stopping import keep_best

__all__ = ["Record", "ScoringEstimator", "unchanged_on_error"]

Method = TypeVar("Method", bound=Callable[..., Any])

_NUM_EVALUATIONS = 20
"""Number of entries in the history of a network's training."""


class Record(NamedTuple):
    """One entry of a history."""

    step: int
    """Number of steps taken, or of iterations of L-BFGS for a linear model."""
    objective: float
    """Mean of the estimated objective over the steps since the last entry."""
    metric: float | None
    """Metric of the held-out samples, if there are any."""


def unchanged_on_error(method: Method) -> Method:
    """Decorate a method of an estimator, so that it changes nothing if it raises or is interrupted.

    All attributes are put back, and the state of a ``RandomState`` that was given as the seed. So
    the method must replace what an attribute holds, and never write into it.
    """

    @wraps(method)
    def wrapped(self: "ScoringEstimator", *args: Any, **kwargs: Any) -> Any:
        before, seed = vars(self).copy(), self.random_state
        drawn: Any = seed.get_state() if isinstance(seed, RandomState) else None
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            # One assignment, which Ctrl-C cannot interrupt half-way.
            self.__dict__ = before
            if isinstance(seed, RandomState):
                seed.set_state(drawn)
            raise

    return cast(Method, wrapped)


# A data class generates the __init__ that scikit-learn requires. It only stores its arguments, and
# its signature also names the arguments of the base classes.
@dataclass(eq=False, repr=False)
class ScoringEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Base class of estimators whose scores come from a linear model or a small network.

    Both are trained in two phases: first by a likelihood, then by the objective of the metric. Only
    what raises the metric of held-out samples is kept. A linear model minimizes exact objectives by
    L-BFGS. A network is trained by AdamW with batches. If training raises an error or is
    interrupted, the estimator is as before.

    Args:
        hidden: the widths of the hidden layers, or one width; () gives a linear model.
        C: the inverse of the ridge of a linear model, as in ``LogisticRegression``.
        max_steps: the number of steps that ``fit`` takes with a network. The learning rate falls to
            0 over these steps.
        learning_rate: the learning rate of the first step.
        weight_decay: the decoupled weight decay of a network, as in AdamW.
        batch_size: the number of samples per step.
        early_stopping: whether to hold out samples in ``fit``. A network stops when their metric no
            longer rises, and keeps the best weights. A linear model takes the second phase only if
            it raises the metric of every held-out fold, and is then fitted to all samples. Nothing
            is held out if that would be fewer than 10 samples of the rarest kind. A linear model
            then has only the first phase, and a network takes all steps.
        validation_fraction: the fraction that is held out.
        patience: the number of evaluations of the metric (20 in ``max_steps``) without a rise after
            which training stops.
        partial_steps: the number of steps of each call of ``partial_fit``.
        verbose: whether to print each entry of the history.
        random_state: the seed of the split, the hidden layers and the batches.
    """

    hidden: Sequence[int] | int = ()
    _: KW_ONLY
    C: float = 1.0
    max_steps: int = 1000
    learning_rate: float = 0.03
    weight_decay: float = 1e-3
    batch_size: int = 128
    early_stopping: bool = True
    validation_fraction: float = 0.2
    patience: int = 10
    partial_steps: int = 100
    verbose: bool = False
    random_state: int | RandomState | None = None

    @property
    def coef_(self) -> NDArray[np.float64]:
        """(outputs, features), the coefficients of a linear model, for unscaled features."""
        return self._linear_weights()[0]

    @property
    def intercept_(self) -> NDArray[np.float64]:
        """(outputs,), the intercepts of a linear model."""
        return self._linear_weights()[1]

    def _linear_weights(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        check_is_fitted(self, "network_")
        if len(self.network_) > 1:
            raise AttributeError("a network with hidden layers has no coef_ and no intercept_")
        weight, bias = (p.detach().numpy() for p in self.network_.parameters())
        # The model was fitted to (X - mean) / scale, so both are moved into the coefficients.
        coefficients = weight / self.scaler_.scale_
        return coefficients, bias - coefficients @ self.scaler_.mean_

    def _fit(self, X: Any, target: Target) -> Self:
        """Train the model from the beginning."""
        check_settings(self)
        random = check_random_state(self.random_state)
        inputs = self._scale(X, target)
        network, seed = self._build(target, random)
        self.history_: list[Record] = []
        # partial_fit does not continue a finished training, whose learning rate has fallen to 0.
        # It starts a new training from these weights.
        self._training: Training | None = None
        if len(network) > 1:
            training = Training(network, seed=seed)
            self._fit_network(training, inputs, target, random)
            return self._keep(network, training.step)
        fraction = self.validation_fraction if self.early_stopping else None
        found = fit_linear(inputs, target, C=self.C, fraction=fraction, random=random)
        iterations = 0
        for solution in found:
            iterations += solution.iterations
            self._log(Record(iterations, solution.objective, None))
        weights = torch.from_numpy(found[-1].weights)
        network.double().load_state_dict({"0.weight": weights[:-1].T, "0.bias": weights[-1]})
        return self._keep(network, iterations)

    def _fit_network(
        self, training: Training, inputs: Standardized, target: Target, random: RandomState
    ) -> None:
        """Take ``max_steps`` steps, half of them on the likelihood, with early stopping if set."""
        folds, metric = None, None
        if self.early_stopping:
            folds = target.folds(max(round(1 / self.validation_fraction), 2), random)
        if folds is not None:
            held, rest = np.flatnonzero(folds == 0), np.flatnonzero(folds != 0)
            held_inputs, judge = inputs[held], target.take(held)
            inputs, target = inputs[rest], target.take(rest)

            def metric() -> float:
                return judge.metric(network_scores(training.network, held_inputs))

        count = self.max_steps
        # The learning rate falls to 0 along half a cosine.
        rates = (self.learning_rate * (1 + cos(pi * step / count)) / 2 for step in range(count))
        steps = training.steps(
            inputs,
            target,
            rates,
            batch_size=self.batch_size,
            weight_decay=self.weight_decay,
            warm_up=count // 2,
        )
        every = -(-count // _NUM_EVALUATIONS)
        evaluations = keep_best(
            training.network, steps, count, every=every, metric=metric, patience=self.patience
        )
        for values, found in evaluations:
            self._log(Record(training.step, sum(values) / len(values), found))

    def _partial_fit(self, X: Any, target: Target) -> Self:
        """Take further steps, or the first ones; the first samples set the feature scales."""
        check_settings(self)
        first = not hasattr(self, "network_")
        if first:
            self.history_ = []
        inputs = self._scale(X, target) if first else Standardized.of(X, self.scaler_)
        # Steps change a training in place. A copy takes them, because this call may fail.
        training = None if first else deepcopy(self._training)
        if training is None:
            network, seed = self._build(target, check_random_state(self.random_state))
            if not first:
                network.load_state_dict(self.network_.state_dict())
            training = Training(network, seed=seed, step=0 if first else self.n_steps_)
        self._training = training
        # The last step is not known, so the rate falls as 1 / sqrt(step) and not to 0.
        numbers = range(training.step, training.step + self.partial_steps)
        rates = [self.learning_rate * (1 + number / 100) ** -0.5 for number in numbers]
        steps = training.steps(
            inputs, target, rates, batch_size=self.batch_size, weight_decay=self.weight_decay
        )
        values = list(steps)
        self._log(Record(training.step, sum(values) / len(values), None))
        return self._keep(training.network, training.step)

    def _log(self, record: Record) -> None:
        """Add an entry to the history, and print it if ``verbose`` is set."""
        self.history_ = [*self.history_, record]
        if self.verbose:
            step, value, metric = record
            held_out = "" if metric is None else f", held-out metric {metric:.4f}"
            line = f"[{type(self).__name__}] step {step}: objective {value:.5f}{held_out}"
            print(line)  # noqa: T201

    def _keep(self, network: nn.Sequential, steps: int) -> Self:
        self.network_ = deepcopy(network).double()
        self.n_steps_ = steps
        return self

    def _validated(
        self, X: ArrayLike, y: Any = "no_validation", *, reset: bool, **more: Any
    ) -> Any:
        """Check features, and y if it is given, as scikit-learn does; features must be finite.

        The result has no feature names, so it must not be checked again.
        """
        if not reset:
            check_is_fitted(self, "network_")
        if not issparse(X) and np.asarray(X).dtype.kind in "mM":
            raise ValueError("X must hold numbers, got dates or times")
        more |= {"dtype": np.float64, "reset": reset, "ensure_all_finite": False}
        found = validate_data(self, X, y, accept_sparse="csr", **more)
        features = found[0] if isinstance(found, tuple) else found
        wrong = first_wrong(features)
        if wrong is not None:
            row, column = wrong
            name = getattr(self, "feature_names_in_", range(features.shape[1]))[column]
            got = "NaN" if np.isnan(features[row, column]) else features[row, column]
            raise ValueError(
                f"Input X contains {got} in row {row}, column {name!r}: features must be finite "
                f"(below {LARGEST:g})"
            )
        return found

    def _scores(self, features: Any) -> NDArray[np.float64]:
        """Return scores (n, outputs) in float64."""
        if len(self.network_) == 1:
            # A classifier may report these with the other sign.
            coefficients, intercepts = self._linear_weights()
            return linear_scores(features, np.vstack([coefficients.T, intercepts]))
        inputs = Standardized.of(features, self.scaler_)
        scores: NDArray[np.float64] = network_scores(self.network_, inputs).numpy()
        return scores

    def _scale(self, X: Any, target: Target) -> Standardized:
        """Fit the scales of the features to these samples, and standardize the features."""
        self.scaler_ = StandardScaler(with_mean=not issparse(X)).fit(X, sample_weight=target.weight)
        return Standardized.of(X, self.scaler_)

    def _build(self, target: Target, random: RandomState) -> tuple[nn.Sequential, int]:
        """Return a new network, and the seed of its hidden layers and batches."""
        seed = int(random.randint(np.iinfo(np.int32).max))
        widths = read_widths(self.hidden)
        return build_network(self.n_features_in_, widths, target.outputs, seed=seed), seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags
