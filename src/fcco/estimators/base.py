"""The common part of all estimators: arguments, network and training."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Self

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from fcco.estimators.arguments import check_arguments, widths
from fcco.estimators.network import build_network
from fcco.estimators.stopping import cosine, root, train
from fcco.estimators.target import Target
from fcco.estimators.training import Fit, Plan

__all__ = ["CompositionalEstimator"]

_LOOKS = 20
"""The number of entries in the history of a training."""

_LARGEST = 1e150
"""The largest feature: its square is finite, as the scaling requires."""


class CompositionalEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A scoring network, trained by SOX with Adam-style steps on a ``Target``.

    Args:
        hidden: widths of the hidden layers, or one width; () is a linear model.
        max_steps: steps of ``fit``; the learning rate decays to zero over them.
        learning_rate: the learning rate of the first step.
        weight_decay: decoupled, as in AdamW.
        blocks_per_step: the largest number of blocks probed per step; None: 64.
        samples_per_block: inner samples per block; None: depends on the objective.
        early_stopping: hold out samples in ``fit``, stop when their metric no longer rises, and
            keep the best weights; nothing is held out if the held-out part would have fewer than
            10 of the rarest kind.
        validation_fraction: the fraction that is held out.
        patience: evaluations of the metric (20 in ``max_steps``) without a rise before it stops.
        partial_steps: steps of each call of ``partial_fit``.
        random_state: seeds the split, the hidden layers and the batches.
    """

    def __init__(
        self,
        hidden: Sequence[int] | int = (),
        *,
        max_steps: int = 1000,
        learning_rate: float = 0.03,
        weight_decay: float = 1e-3,
        blocks_per_step: int | None = None,
        samples_per_block: int | None = None,
        early_stopping: bool = True,
        validation_fraction: float = 0.1,
        patience: int = 10,
        partial_steps: int = 100,
        random_state: int | RandomState | None = None,
    ) -> None:
        self.hidden = hidden
        self.max_steps = max_steps
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.blocks_per_step = blocks_per_step
        self.samples_per_block = samples_per_block
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.partial_steps = partial_steps
        self.random_state = random_state

    def _fit(self, X: NDArray[Any], target: Target) -> Self:
        """A whole training, from the beginning."""
        check_arguments(self)
        self.scaler_ = StandardScaler().fit(X)
        inputs = self._inputs(X)
        random = check_random_state(self.random_state)
        training = self._begin(target, random)
        rows = np.empty(0, dtype=np.intp)
        if self.early_stopping:
            rows = target.held_out(self.validation_fraction, random)
        held_out = None
        if len(rows):
            rest = np.setdiff1d(np.arange(len(X)), rows)
            held_out = inputs[torch.from_numpy(rows)], target.take(rows)
            inputs, target = inputs[torch.from_numpy(rest)], target.take(rest)
        self.history_ = train(
            training,
            inputs,
            target,
            self.max_steps,
            rate=cosine(self.max_steps),
            every=-(-self.max_steps // _LOOKS),
            patience=self.patience,
            held_out=held_out,
        )
        # a finished training is not continued: partial_fit starts a new one from these weights
        return self._keep(training, going_on=False)

    def _partial_fit(self, X: NDArray[Any], target: Target) -> Self:
        """Further steps, or the first ones; the first samples set the scales of the features."""
        check_arguments(self)
        fresh = not hasattr(self, "network_")
        if fresh:
            self.scaler_ = StandardScaler().fit(X)
            self.history_ = []
        training: Fit | None = None if fresh else self._training
        if training is None:
            training = self._begin(target, check_random_state(self.random_state))
            if not fresh:
                training.network.load_state_dict(self.network_.state_dict())
                training.step = self.n_steps_
        training.plan = self._plan(target)
        self.history_ = self.history_ + train(
            training,
            self._inputs(X),
            target,
            self.partial_steps,
            rate=root,
            every=self.partial_steps,
            patience=1,
        )
        return self._keep(training, going_on=True)

    def _keep(self, training: Fit, *, going_on: bool) -> Self:
        self._training = training if going_on else None
        self.n_steps_ = training.step
        self.network_ = deepcopy(training.network).double()
        return self

    def _validated(
        self, X: ArrayLike, y: ArrayLike | str | None = "no_validation", *, reset: bool, **more: Any
    ) -> Any:
        """Features, and y if it is given, as scikit-learn checks them; then each must be finite.

        The result has no feature names and must not be checked again.
        """
        if not reset:
            check_is_fitted(self, "network_")
        if np.asarray(X).dtype.kind in "mM":
            raise ValueError("X must hold numbers, got dates or times")
        more |= {"dtype": np.float64, "reset": reset, "ensure_all_finite": False}
        found = validate_data(self, X, y, **more)
        features: NDArray[np.float64] = found[0] if isinstance(found, tuple) else found
        wrong = ~(np.abs(features) <= _LARGEST)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            name = getattr(self, "feature_names_in_", range(features.shape[1]))[column]
            got = "NaN" if np.isnan(features[row, column]) else features[row, column]
            raise ValueError(
                f"Input X contains {got} in row {row}, column {name!r}: features must be finite "
                f"(below {_LARGEST:g})"
            )
        return found

    def _scores(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n, outputs), in float64: the score of a sample then does not depend on the others."""
        with torch.no_grad():
            scores = self.network_(torch.from_numpy(self.scaler_.transform(features)))
        array: NDArray[np.float64] = scores.numpy()
        return array

    def _inputs(self, X: NDArray[Any]) -> Tensor:
        return torch.from_numpy(self.scaler_.transform(X).astype(np.float32))

    def _begin(self, target: Target, random: RandomState) -> Fit:
        seed = int(random.randint(np.iinfo(np.int32).max))
        network = build_network(
            self.n_features_in_, widths(self.hidden), target.outputs, bias=target.shifts, seed=seed
        )
        return Fit(network, self._plan(target), seed=seed)

    def _plan(self, target: Target) -> Plan:
        blocks = 64 if self.blocks_per_step is None else self.blocks_per_step
        samples = target.samples if self.samples_per_block is None else self.samples_per_block
        return Plan(self.learning_rate, self.weight_decay, blocks, samples)
