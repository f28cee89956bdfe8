"""Measurements of rates: runs of a recipe, stages, accuracies, and a prescribed path.

Each function returns a measurement: (size, runs, seed) to points on an axis and values of shape
(points, runs).
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fcco.methods.coefficients import gamma_theory
from fcco.schedules import RECIPES
from fcco_lab.theory.phase_noise import PhaseNoise
from fcco_lab.theory.sweep import Sweep

__all__ = [
    "Measurement",
    "N",
    "along_the_run",
    "by_stage",
    "convex",
    "linear",
    "path",
    "path_error",
]

Measurement = Callable[[int, int, int], tuple[list[float], Tensor]]
"""(size, runs, seed) to the points on the axis and values of shape (points, runs)."""

M, B1, N = 16, 2, 8
"""Blocks, blocks probed and finite-sum size of the measurements, unless a question sweeps them."""


def along_the_run(label: str, quantity: str, phi: str, **options: Any) -> Measurement:
    """A mean over the steps of a run with the recipe for T."""

    def run(horizon: int, runs: int, seed: int) -> tuple[list[float], Tensor]:
        finite = "n" in options
        problem = PhaseNoise(M, phi=phi, inner_size=N if finite else None)
        recipe = RECIPES[label](m=M, B1=B1, T=horizon, **options)
        traces = Sweep(problem, recipe, blocks=B1, runs=runs, seed=seed + horizon).run()
        return [float(horizon)], getattr(traces, quantity).unsqueeze(0)

    return run


def by_stage(label: str, **options: Any) -> Measurement:
    """The gap at the end of each stage against the samples used so far; x is the last stage."""

    def run(stages: int, runs: int, seed: int) -> tuple[list[float], Tensor]:
        finite = "n" in options
        problem = PhaseNoise(M, phi="quadratic", inner_size=N if finite else None, isotropic=True)
        gap = float(problem.value(problem.start) - problem.optimum)
        recipe = RECIPES[label](
            m=M, B1=B1, mu=problem.mu, epsilon=gap / 2**stages, epsilon_0=gap, **options
        )
        traces = Sweep(problem, recipe, blocks=B1, runs=runs, seed=seed).run()
        steps = torch.tensor([stage.num_steps for stage in recipe.stages]).cumsum(0)
        return [float(B1 * n) for n in steps], traces.gaps

    return run


def linear(label: str, **options: Any) -> Measurement:
    """The same against the number of the stage."""
    stages_of = by_stage(label, **options)

    def run(stages: int, runs: int, seed: int) -> tuple[list[float], Tensor]:
        _, gaps = stages_of(stages, runs, seed)
        return [float(s) for s in range(1, len(gaps) + 1)], gaps

    return run


def convex(label: str, phi: str = "log-cosh", **options: Any) -> Measurement:
    """The gap of a convex, not strongly convex objective at accuracy 2^-k, against the samples.

    F + (mu/2) ||w||^2 with mu = epsilon / D is run stage-wise; the gap is that of F.
    """

    def run(power: int, runs: int, seed: int) -> tuple[list[float], Tensor]:
        finite = "n" in options
        problem = PhaseNoise(M, phi=phi, inner_size=N if finite else None, isotropic=True)
        epsilon = 2.0 ** -(power / 2)
        recipe = RECIPES[label](
            m=M, B1=B1, mu=epsilon, epsilon=epsilon, epsilon_0=1.0, convex=True, **options
        )
        traces = Sweep(problem, recipe, blocks=B1, runs=runs, seed=seed + power).run()
        return [float(B1 * recipe.num_steps)], traces.gaps[-1:]

    return run


def path_error(
    num_steps: int, num_blocks: int, runs: int, seed: int, *, theorem: int, correction: str
) -> Tensor:
    """Tracking error on a prescribed path: a circle, in steps of the theorem's eta.

    The mean of ||u - g(w)||^2 / m over the second half, with the beta of the theorem.
    ``correction`` is "none", "storm" or "theory".
    """
    m = num_blocks
    if theorem == 1:
        beta = min(1.0, math.sqrt(m / (B1 * num_steps)))
        eta = math.pow(B1 / m, 1 / 4) * math.pow(num_steps, -3 / 4)
    else:
        beta = min(0.5, math.pow(m / (B1 * num_steps), 2 / 3))
        eta = math.pow(B1 / m, 1 / 3) * math.pow(num_steps, -2 / 3)
    gamma = 0.0
    if correction == "storm":
        gamma = 1 - beta
    elif correction == "theory":
        gamma = gamma_theory(beta, m, B1)
    problem = PhaseNoise(m, dim=2, noise=0.5, distinct=8)
    generator = torch.Generator().manual_seed(seed + num_steps + m)

    def place(t: int) -> Tensor:
        angle = eta * t
        return torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)

    u = problem.exact_inner(place(0)).expand(runs, m) + 0.5 * torch.randn(
        (runs, m), generator=generator, dtype=torch.float64
    ) / math.sqrt(2)
    total = torch.zeros(runs, dtype=torch.float64)
    for t in range(1, num_steps + 1):
        now, before = place(t).expand(runs, 2), place(t - 1).expand(runs, 2)
        blocks = torch.rand((runs, m), generator=generator).argsort(1)[:, :B1]
        xi = problem.phases((runs, B1), generator)
        g = problem.sample(now, blocks, xi)
        change = g - problem.sample(before, blocks, xi)
        u.scatter_(1, blocks, (1 - beta) * u.gather(1, blocks) + beta * g + gamma * change)
        if 2 * t > num_steps:
            error = (u - problem.exact_inner(now)).square().mean(1)
            total += error / (num_steps - num_steps // 2)
    return total


def path(theorem: int, correction: str, sweep: str = "T") -> Measurement:
    """``path_error`` against the horizon, or against m at a horizon of 4096."""

    def run(x: int, runs: int, seed: int) -> tuple[list[float], Tensor]:
        horizon, m = (x, M) if sweep == "T" else (4096, x)
        error = path_error(horizon, m, runs, seed, theorem=theorem, correction=correction)
        return [float(x)], error.unsqueeze(0)

    return run
