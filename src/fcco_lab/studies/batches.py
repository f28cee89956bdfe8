"""The study of small inner batches, with the table and without it."""

import math
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import torch
from torch import nn

from fcco.data import exact_value
from fcco.kernel.safeguard import ChangeBound
from fcco.methods import REGISTRY
from fcco.optim import CompositionalOptimizer, by_name
from fcco.problem import Objective
from fcco.updates import Adam
from fcco_lab.studies.case import Case
from fcco_lab.studies.fitting import compositional, fit
from fcco_lab.studies.workloads import WORKLOADS, Workload

__all__ = ["CONTENDERS", "SIZES", "batch_cases", "run_batches", "train"]

SIZES = (256, 64, 16, 4)
"""Inner samples per block."""

STEPS, SEEDS, TUNING_SEED = 400, 5, 100

_RATES, _SECOND = (0.003, 0.01, 0.03), (0.1, 0.5)
"""The same tuning for all: three step sizes by two values of alpha (BSGD) or beta (others)."""

CONTENDERS = {
    "BSGD": ("bsgd", False),
    "SOX (u before)": ("sox", False),
    "SOX": ("sox", True),
    "MSVRM-v1": ("msvrm-v1", True),
    "MSVRM-v2": ("msvrm-v2", True),
}
"""By their names in records: the method, and whether its slopes are taken after the update of the
table (the paper takes them before)."""


def _build(
    contender: str, model: nn.Module, objective: Objective, lr: float, second: float
) -> CompositionalOptimizer:
    name, updated = CONTENDERS[contender]
    return by_name(
        name,
        model,
        objective,
        lr=lr,
        alpha=0.5 if "beta" in REGISTRY[name].coefficients else second,
        beta=second,
        gamma="age",
        update=Adam(),
        safeguard=ChangeBound(),
        updated_slopes=updated,
    )


def batch_cases() -> Iterator[Case]:
    """Every workload, size and contender; each is tuned on one seed and then run on others."""
    for workload, samples, method in product(WORKLOADS, SIZES, CONTENDERS):
        options = {"workload": workload, "method": method, "samples": samples}
        yield Case("batches", f"{workload} {method} {samples}", options)


def run_batches(*, workload: str, method: str, samples: int, steps: int = STEPS) -> dict[str, Any]:
    """Choose the setting with the lowest exact objective on a separate seed; run the seeds."""
    problem, entry = _load(workload), REGISTRY[CONTENDERS[method][0]]
    work = entry.values + 2 * entry.gradients  # of a step, where SOX has 3

    def run(lr: float, second: float, seed: int) -> tuple[float, float]:
        model = problem.make_model(seed)
        opt = _build(method, model, problem.objective, lr, second)
        return train(problem, model, opt, samples, steps * 3 // work, seed)

    settings = list(product(_RATES, _SECOND))
    scores = [run(*setting, TUNING_SEED)[0] for setting in settings]
    best = settings[scores.index(min(scores))]
    runs = [run(*best, seed) for seed in range(SEEDS)]
    return {
        "metric": problem.metric_name,
        "lr": best[0],
        "second": best[1],
        "objectives": [value for value, _ in runs],
        "metrics": [value for _, value in runs],
    }


@cache
def _load(name: str) -> Workload:
    return WORKLOADS[name]()


def train(
    problem: Workload,
    model: nn.Module,
    opt: CompositionalOptimizer,
    samples: int,
    steps: int,
    seed: int,
) -> tuple[float, float]:
    """The exact objective and the test metric at the end; a diverged run has neither."""
    made = compositional(
        model,
        problem.objective,
        problem.train,
        steps=steps,
        blocks=problem.blocks,
        samples=samples,
        seed=seed,
        opt=opt,
    )
    try:
        fit(model, *made, steps, None)
    except FloatingPointError:
        return math.inf, math.nan
    with torch.no_grad():
        value = exact_value(model, problem.train, problem.objective, chunk_size=4096)
        return problem.risk(value) if math.isfinite(value) else math.inf, problem.metric(model)
