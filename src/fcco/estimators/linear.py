"""Linear models, fitted by minimizing exact objectives of all samples with L-BFGS."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from fcco.estimators.features import Standardized
from fcco.estimators.target import Target

__all__ = ["Solution", "fit_linear", "linear_scores"]

_FOLDS, _FOLDS_OF_MANY, _MANY = 5, 3, 2000
"""Number of folds that must agree that the second phase is better; fewer with many samples."""

_ITERATIONS = (1000, 30)
"""Largest number of iterations of each phase. The second objective may have no minimum."""


class Solution(NamedTuple):
    """The result of one phase."""

    weights: NDArray[np.float64]
    """(d + 1, outputs), the weights, with the intercepts in the last row."""
    objective: float
    """Value of the objective, including the ridge."""
    iterations: int
    """Number of iterations of L-BFGS."""


def linear_scores(X: Any, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores (n, outputs) of features; the last row of weights is the intercept.

    Examples:
        >>> linear_scores(np.eye(2), np.array([[1.0], [2.0], [10.0]]))
        array([[11.],
               [12.]])
    """
    scores: NDArray[np.float64] = X @ weights[:-1] + weights[-1]
    return scores


def fit_linear(
    X: Standardized,
    target: Target,
    *,
    C: float,
    fraction: float | None,
    random: RandomState,
) -> list[Solution]:
    """Minimize the phases of a target, and return the solution of every phase that is kept.

    The second phase starts from the solution of the first, which is a likelihood. It is kept only
    if it raises the metric in all held-out folds.

    Args:
        X: (n, d), the features.
        target: the labels.
        C: the inverse of the ridge, as in scikit-learn's ``LogisticRegression``.
        fraction: the size of a fold, or None to hold out nothing and always keep the last phase.
        random: the generator that draws the folds.
    """
    phases = target.phases()
    found = [_minimize(phases[0].exact, X, None, C, target, _ITERATIONS[0])]
    if len(phases) > 1 and (fraction is None or _second_is_better(X, target, C, fraction, random)):
        found.append(_minimize(phases[1].exact, X, found[0].weights, C, target, _ITERATIONS[1]))
    return found


def _second_is_better(
    X: Standardized, target: Target, C: float, fraction: float, random: RandomState
) -> bool:
    """Return whether the second phase raises the metric of every held-out fold above the first.

    The weights start at zero. The solution for all samples has already seen the held-out ones, so a
    fit that starts there would be too good on them.
    """
    count = max(round(1 / fraction), 2)
    folds = target.folds(count, random)
    if folds is None:
        return False
    for fold in range(min(count, _FOLDS if X.shape[0] <= _MANY else _FOLDS_OF_MANY)):
        rest, held = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        inputs, part, judge = X[rest], target.take(rest), target.take(held)
        weights, metrics = None, []
        for phase, iterations in zip(part.phases(), _ITERATIONS, strict=True):
            weights = _minimize(phase.exact, inputs, weights, C, part, iterations).weights
            metrics.append(judge.metric(torch.from_numpy(linear_scores(X[held], weights))))
        if metrics[1] <= metrics[0]:
            return False
    return True


def _minimize(
    objective: Callable[[Tensor], Tensor],
    X: Standardized,
    start: NDArray[np.float64] | None,
    C: float,
    target: Target,
    iterations: int,
) -> Solution:
    """Minimize an objective of all scores plus a ridge on the weights, from ``start`` or from 0."""
    # scikit-learn minimizes C times the sum of losses plus half the squared norm. Divided by C n,
    # this is the mean loss plus this ridge. The intercepts have no ridge.
    ridge = 1 / (C * (X.shape[0] if target.weight is None else target.weight.sum()))
    start = np.zeros((X.shape[1] + 1, target.outputs)) if start is None else start

    def cost(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights = flat.reshape(start.shape)
        scores = torch.from_numpy(linear_scores(X, weights)).requires_grad_()
        loss = objective(scores)
        slope = torch.autograd.grad(loss, scores)[0].numpy()
        gradient = np.vstack([X.transposed(slope) + ridge * weights[:-1], slope.sum(0)])
        return loss.item() + ridge / 2 * float((weights[:-1] ** 2).sum()), gradient.ravel()

    # The tolerances are those of scikit-learn's LogisticRegression.
    options = {"maxiter": iterations, "gtol": 1e-4, "ftol": 64 * np.finfo(float).eps}
    found = minimize(cost, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    return Solution(found.x.reshape(start.shape), float(found.fun), int(found.nit))
