"""Linear models: exact objectives of all samples, minimized by L-BFGS."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from fcco.estimators.features import Standardized
from fcco.estimators.target import Target

__all__ = ["fit_linear", "linear_scores"]

Weights = NDArray[np.float64]
_FOLDS, _FOLDS_OF_MANY, _MANY = 5, 3, 2000
"""How many folds must agree that the metric's objective is better, and of how many samples."""

_ITERATIONS = (1000, 30)
"""At most, of each phase; the second objective may have no minimum."""


def linear_scores(X: Any, weights: Weights) -> NDArray[np.float64]:
    """Scores (n, outputs) of dense or sparse features; the last row of the weights is the offset.

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
    fraction: float,
    validate: bool,
    random: RandomState,
) -> list[tuple[Weights, float, int]]:
    """Weights (d + 1, outputs), objective and iterations of every phase that is kept.

    The first phase, a likelihood, is where the second starts, and where the fit ends unless the
    second raises the metric in all folds that are held out.

    Args:
        X: (n, d).
        target: the labels.
        C: the inverse of the ridge, as in scikit-learn's ``LogisticRegression``.
        fraction: the size of a fold.
        validate: whether there are folds; without, the last phase is always kept.
        random: draws the folds.
    """
    found = []
    weights = np.zeros((X.shape[1] + 1, target.outputs))
    for number, phase in enumerate(target.phases()):
        if number and validate and not _rises(X, target, C, fraction, random):
            break
        found.append(_minimize(phase.exact, X, weights, C, target, _ITERATIONS[number]))
        weights = found[-1][0]
    return found


def _rises(X: Standardized, target: Target, C: float, fraction: float, random: RandomState) -> bool:
    """Whether the second phase raises the metric of every held-out fold above the first.

    The weights start at zero: the solution of all samples has seen those that are held out, and a
    likelihood that starts there forgets them only near its minimum.
    """
    count = max(round(1 / fraction), 2)
    folds = target.folds(count, random)
    if folds is None:
        return False
    for fold in range(min(count, _FOLDS if X.shape[0] <= _MANY else _FOLDS_OF_MANY)):
        rest, held = (np.flatnonzero(side) for side in (folds != fold, folds == fold))
        part, metrics = target.take(rest), []
        weights = np.zeros((X.shape[1] + 1, target.outputs))
        for phase, iterations in zip(part.phases(), _ITERATIONS, strict=True):
            weights, *_ = _minimize(phase.exact, X[rest], weights, C, part, iterations)
            scores = torch.from_numpy(linear_scores(X[held], weights))
            metrics.append(target.take(held).metric(scores))
        if metrics[1] <= metrics[0]:
            return False
    return True


def _minimize(
    value: Callable[[Tensor], Tensor],
    X: Standardized,
    start: Weights,
    C: float,
    target: Target,
    iterations: int,
) -> tuple[Weights, float, int]:
    ridge = 1 / (C * (X.shape[0] if target.weight is None else target.weight.sum()))

    def cost(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights = flat.reshape(start.shape)
        scores = torch.from_numpy(linear_scores(X, weights)).requires_grad_()
        loss = value(scores)
        slope = torch.autograd.grad(loss, scores)[0].numpy()
        gradient = np.vstack([X.transposed(slope) + ridge * weights[:-1], slope.sum(0)])
        return loss.item() + ridge / 2 * float((weights[:-1] ** 2).sum()), gradient.ravel()

    # the tolerances of scikit-learn's LogisticRegression
    options = {"maxiter": iterations, "gtol": 1e-4, "ftol": 64 * np.finfo(float).eps}
    found = minimize(cost, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(start.shape), float(found.fun), int(found.nit)
