"""The study of the gain: beta = "auto" beside fixed gains and the rules of others."""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any

import torch

from fcco.data import exact_value
from fcco_lab.studies.case import Case
from fcco_lab.studies.stacked import Stack, Variant
from fcco_lab.studies.workloads import WORKLOADS, Workload

__all__ = ["GAINS", "gain_cases", "run_gain", "train"]

GAINS: dict[str, Any] = {
    "BSGD": 1.0,
    "0.1": 0.1,
    "0.2": 0.2,
    "0.5": 0.5,
    "0.9": 0.9,
    "auto": "auto",
    "SCENT": ("scent", 0.0),
    "cosine": "cosine",
    "restart": ("restart", 0.2),
    "log": ("log", 0.2),
}
"""By their names in records."""

RATES = (0.003, 0.01, 0.03)
TUNING_SEEDS, SEEDS = (100, 101), tuple(range(10))


def gain_cases() -> Iterator[Case]:
    """Every workload and size, small sizes first; then long runs; then large sizes."""
    for samples, steps in ((4, 400), (16, 400), (16, 2000), (4, 2000), (64, 400), (256, 400)):
        for workload in WORKLOADS:
            options = {"workload": workload, "samples": samples, "steps": steps}
            yield Case("gain", f"{workload} {samples}{' long' * (steps > 400)}", options)


def run_gain(*, workload: str, samples: int, steps: int) -> dict[str, Any]:
    """Choose each gain's step size on seeds of their own, then run the seeds of the comparison."""
    problem = _load(workload)
    tried = [Variant(beta, lr) for beta, lr in product(GAINS.values(), RATES)]
    tuning, _, _ = train(problem, samples, steps, TUNING_SEEDS, tried)
    scores = tuning.mean(0).view(len(GAINS), len(RATES))
    chosen = scores.argmin(1).tolist()
    best = [Variant(b, RATES[k]) for b, k in zip(GAINS.values(), chosen, strict=True)]
    values, metrics, gains = train(problem, samples, steps, SEEDS, best)
    auto = list(GAINS).index("auto")
    return {
        "metric": problem.metric_name,
        "lr": {name: RATES[k] for name, k in zip(GAINS, chosen, strict=True)},
        "tuning": dict(zip(GAINS, scores.amin(1).tolist(), strict=True)),
        "objectives": dict(zip(GAINS, values.T.tolist(), strict=True)),
        "metrics": dict(zip(GAINS, metrics.T.tolist(), strict=True)),
        "gain": [round(g, 3) for g in gains[:: max(steps // 20, 1), auto].tolist()],
    }


@cache
def _load(name: str) -> Workload:
    return WORKLOADS[name]()


@torch.no_grad()
def train(
    problem: Workload, samples: int, steps: int, seeds: Sequence[int], variants: Sequence[Variant]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Exact objectives and test metrics at the end, (seeds, variants), and the gains."""
    stack = Stack(problem, samples, steps, seeds, variants)
    with torch.enable_grad():
        stack.run()
    values = torch.full((len(seeds), len(variants)), math.inf, dtype=torch.float64)
    metrics = torch.full_like(values, math.nan)
    for i, j, model in stack.models():
        if not all(p.isfinite().all() for p in model.parameters()):
            continue
        value = exact_value(model, problem.train, problem.objective, chunk_size=4096)
        if math.isfinite(value):
            values[i, j], metrics[i, j] = problem.risk(value), problem.metric(model)
    return values, metrics, torch.stack(stack.gains)
