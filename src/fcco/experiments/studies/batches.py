"""What the table is for: quality as the inner batch shrinks, with it and without it."""

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from typing import Any

import torch
from torch import nn

from fcco.data import block_loader, exact_value
from fcco.experiments.studies.case import Case
from fcco.experiments.studies.workloads import WORKLOADS, Workload
from fcco.optim import BSGD, MSVRM, SOX, CompositionalOptimizer
from fcco.kernel.safeguard import ChangeBound
from fcco.updates import Adam

__all__ = ["CONTENDERS", "SIZES", "batch_cases", "run_batches"]

SIZES = (256, 64, 16, 4)
"""Inner samples a block."""

STEPS, SEEDS, TUNING_SEED = 400, 5, 100

_RATES, _SECOND = (0.003, 0.01, 0.03), (0.1, 0.5)
"""Tuned alike for all: three step sizes by two values of alpha (BSGD) or of beta (the others)."""

Build = Callable[[nn.Module, Workload, float, float], CompositionalOptimizer]


def _bsgd(model: nn.Module, work: Workload, lr: float, second: float) -> CompositionalOptimizer:
    return BSGD(model.parameters(), work.objective, lr=lr, alpha=second, update=Adam())


def _sox(
    model: nn.Module, work: Workload, lr: float, second: float, *, updated: bool
) -> CompositionalOptimizer:
    return SOX(
        model.parameters(),
        work.objective,
        lr=lr,
        alpha=0.5,
        beta=second,
        update=Adam(),
        updated_slopes=updated,
    )


def _msvrm(
    model: nn.Module, work: Workload, lr: float, second: float, *, version: int
) -> CompositionalOptimizer:
    return MSVRM(
        model.parameters(),
        work.objective,
        version=version,
        lr=lr,
        alpha=0.5,
        beta=second,
        update=Adam(),
        safeguard=ChangeBound() if version == 2 else None,
        updated_slopes=True,
    )


CONTENDERS: dict[str, tuple[Build, int]] = {
    "BSGD": (_bsgd, 3),
    "SOX (u before)": (partial(_sox, updated=False), 3),
    "SOX": (partial(_sox, updated=True), 3),
    "MSVRM-v1": (partial(_msvrm, version=1), 4),
    "MSVRM-v2": (partial(_msvrm, version=2), 6),
}
"""How each is built, and the oracle work of its step in inner samples (values + 2 gradients): no
table; the paper's order, slopes before the table is updated; slopes after it, for the rest."""


def batch_cases() -> Iterator[Case]:
    """Every workload, size and contender; each is tuned on a seed and then run on others."""
    for workload, samples, method in product(WORKLOADS, SIZES, CONTENDERS):
        options = {"workload": workload, "method": method, "samples": samples}
        yield Case("batches", f"{workload} {method} {samples}", options)


def run_batches(*, workload: str, method: str, samples: int, steps: int = STEPS) -> dict[str, Any]:
    """Pick the setting with the lowest exact objective on a seed of its own; run the seeds."""
    problem, (build, work) = _load(workload), CONTENDERS[method]

    def train(lr: float, second: float, seed: int) -> tuple[float, float]:
        model = problem.make_model(seed)
        opt = build(model, problem, lr, second)
        return _train(problem, model, opt, samples, steps * 3 // work, seed)

    settings = list(product(_RATES, _SECOND))
    scores = [train(*setting, TUNING_SEED)[0] for setting in settings]
    best = settings[scores.index(min(scores))]
    runs = [train(*best, seed) for seed in range(SEEDS)]
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


def _train(
    problem: Workload,
    model: nn.Module,
    opt: CompositionalOptimizer,
    samples: int,
    steps: int,
    seed: int,
) -> tuple[float, float]:
    """The exact objective and the test metric at the end; a run that blew up has neither."""
    decay = torch.optim.lr_scheduler.LambdaLR(opt, lambda t: max(1 - t / steps, 0.0))
    loader = block_loader(
        problem.train,
        problem.objective,
        blocks_per_step=problem.blocks,
        samples_per_block=samples,
        num_steps=steps,
        seed=seed,
    )
    try:
        for batch in loader:
            opt.step(partial(problem.objective.inner, model, batch))
            decay.step()
    except FloatingPointError:
        return math.inf, math.nan
    with torch.no_grad():
        value = exact_value(model, problem.train, problem.objective, chunk_size=4096)
        return problem.risk(value) if math.isfinite(value) else math.inf, problem.metric(model)
