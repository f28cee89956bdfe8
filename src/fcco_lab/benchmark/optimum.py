"""What is known of a problem before it is solved: F at the start, F*, and the curvature."""

import math
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fcco_lab.benchmark.problem import Problem, evaluate, parameters_of

__all__ = ["know"]

_NEWTON = 600
"""Newton's method polishes and certifies the optimum with at most so many parameters."""
_STEP = 1e-4
"""Of the central differences of gradients that give products with the Hessian."""

Vector = np.ndarray[Any, np.dtype[np.float64]]


class _Function:
    """F and its gradient as functions of a vector, as SciPy wants them."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.model, self.objective = problem.start()
        self.params = parameters_of(self.model, self.objective)
        self.start: Vector = parameters_to_vector(self.params).detach().numpy().copy()

    def __call__(self, w: Vector) -> tuple[float, Vector]:
        vector_to_parameters(torch.from_numpy(w.copy()), self.params)
        value = evaluate(self.problem, self.model, self.objective)
        parts = torch.autograd.grad(value, self.params, allow_unused=True, materialize_grads=True)
        return float(value.detach()), parameters_to_vector(parts).numpy().copy()

    def curve(self, w: Vector, direction: Vector) -> Vector:
        """The Hessian times a direction, by central differences."""
        step = _STEP * direction / np.linalg.norm(direction)
        change = self(w + step)[1] - self(w - step)[1]
        product: Vector = change * np.linalg.norm(direction) / (2 * _STEP)
        return product


def know(problem: Problem, *, iterations: int = 3000) -> dict[str, Any]:
    """F at the start and at the optimum, a certificate, and the curvature at the start.

    L-BFGS in float64 finds the optimum. If the problem is convex, Newton steps polish it, and half
    the squared Newton decrement bounds what is left of the gap, up to terms of third order. If it
    is not convex, the value is only what L-BFGS found.

    Examples:
        >>> from fcco.objectives import PNormPush
        >>> torch.set_default_dtype(torch.float64)
        >>> x, y = torch.eye(4), torch.tensor([1, 0, 0, 1])
        >>> known = know(Problem(x, lambda: PNormPush(y), lambda: torch.nn.Linear(4, 1),
        ...                      convex=True, penalty=0.1))
        >>> known["certificate"] < 1e-10
        True
        >>> torch.set_default_dtype(torch.float32)
    """
    function = _Function(problem)
    first, _ = function(function.start)
    options = {"maxiter": iterations, "maxfun": 4 * iterations, "maxcor": 50}
    found = minimize(
        function,
        function.start,
        jac=True,
        method="L-BFGS-B",
        options=options | {"ftol": 0.0, "gtol": 1e-12},
    )
    w, value = found.x, float(found.fun)
    left = math.nan
    if problem.convex and len(w) <= _NEWTON:
        w, value, left = _polish(function, w)
    best = value if problem.optimum is None else problem.optimum
    objective = function.objective
    return {
        "first": first,
        "best": best,
        "gradient": float(np.linalg.norm(function(w)[1])),
        "certificate": float(f"{left / (first - best):.2g}"),
        "curvature": float(f"{_largest(function):.4g}"),
        "convex": problem.convex,
        "known": problem.convex or problem.optimum is not None,
        "num_blocks": objective.num_blocks,
        "num_samples": objective.num_samples,
        "num_params": len(w),
    }


def _polish(function: _Function, w: Vector, steps: int = 3) -> tuple[Vector, float, float]:
    """Newton steps while F falls; the last one is the certificate."""
    value, gradient = function(w)
    for _ in range(steps):
        hessian = np.stack([function.curve(w, column) for column in np.eye(len(w))])
        step = -np.linalg.pinv((hessian + hessian.T) / 2, hermitian=True) @ gradient
        decrement = float(-gradient @ step)
        there = function(w + step)
        if not there[0] < value:
            break
        w, (value, gradient) = w + step, there
    return w, value, max(decrement, 0.0) / 2


def _largest(function: _Function, rounds: int = 30) -> float:
    """The largest curvature at the start, by the power method."""
    direction = np.random.default_rng(0).standard_normal(len(function.start))
    size = 1.0
    for _ in range(rounds):
        product = function.curve(function.start, direction)
        size = float(np.linalg.norm(product) / np.linalg.norm(direction))
        direction = product
    return size
