"""How well beta = "auto" tracks: ||u - g(w)||^2 beside fixed gains, on the synthetic family."""

import math
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import torch

from fcco.optim import MSVRM
from fcco.problems import PhaseNoise
from fcco_lab.studies.case import Case

__all__ = ["run_tracking", "tracking_cases"]

BETAS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
STEPS, BLOCKS, SEEDS = 600, 4, 2


class _Point(torch.nn.Module):
    """A model that is its parameters."""

    def __init__(self, start: torch.Tensor) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(start.clone())

    def forward(self) -> torch.Tensor:
        return self.w


def tracking_cases() -> Iterator[Case]:
    """The settings of the study of gamma but beta, each with the correction and without it."""
    for version, m, lr, alpha, gamma in product(
        (1, 2), (20, 100), (0.003, 0.03, 0.3), (0.05, 0.3), ("age", 0.0)
    ):
        name = f"v{version} m/B1={m // BLOCKS} lr={lr} alpha={alpha} gamma={gamma}"
        options = {"version": version, "m": m, "lr": lr, "alpha": alpha, "gamma": gamma}
        yield Case("tracking", name, options)


def run_tracking(**options: Any) -> dict[str, Any]:
    """The error of every gain, the mean over seeds and the second half of the steps."""
    errors = {
        str(beta): sum(_error(beta, seed, **options) for seed in range(SEEDS)) / SEEDS
        for beta in ("auto", *BETAS)
    }
    return {"errors": errors}


def _error(
    beta: float | str, seed: int, *, version: int, m: int, lr: float, alpha: float, gamma: Any
) -> float:
    problem = PhaseNoise(m, noise=0.5, distinct=20)
    generator = torch.Generator().manual_seed(seed)
    model = _Point(problem.start)
    opt = MSVRM(model, problem, version=version, lr=lr, alpha=alpha, beta=beta, gamma=gamma)
    total = 0.0
    for step in range(STEPS):
        blocks = torch.randperm(m, generator=generator)[:BLOCKS]
        xi, pair = (problem.phases((BLOCKS,), generator) for _ in range(2))
        exact = problem.exact_inner(model.w.detach())
        try:
            opt.step(partial(problem.inner, model, (blocks, xi, pair)))
        except FloatingPointError:
            return math.inf
        if 2 * step >= STEPS:
            assert opt.table is not None
            rows = opt.table.whole().flatten()
            total += float((rows - exact).square().mean()) / (STEPS / 2)
    return total
