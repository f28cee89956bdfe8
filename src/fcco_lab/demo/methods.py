"""The paper where it holds: on a convex finite sum, MSVRM-v3 goes on where SOX stops."""

from functools import partial
from typing import Any

import torch

from fcco_lab.benchmark.experiment import find_solver, in_float64
from fcco_lab.benchmark.meter import GRID
from fcco_lab.benchmark.task import Task, run_solver
from fcco_lab.demo.batch_sizes import cox
from fcco_lab.demo.part import Outcome, Part, Show

__all__ = ["METHODS"]

PASSES, BATCH = 100.0, 64


def fit(solver: str, settings: dict[str, Any], seed: int, share: float, show: Show) -> Outcome:
    """Run a solver of the benchmark to the end of its budget of work."""
    with in_float64():
        problem, known = cox()
        chosen = find_solver(solver)
        torch.manual_seed(seed)
        passes = max(1.0, PASSES * share)  # a curve needs a point
        task = Task(problem, known, batch=BATCH, seed=seed, passes=passes)
        record = run_solver(chosen, task, {**chosen.default, **settings})
    if "error" in record:
        raise RuntimeError(f"{solver}: {record['error']}")
    gaps = record["gaps"]
    show(1.0, gaps[-1])
    return Outcome(GRID[: len(gaps)], gaps)


# The step sizes are the best of 0.3, 0.6 and 1 with seed 1000, in units of 1 / curvature; that of
# SOX is halved after one pass (the best of 0.3, 1 and 3).
METHODS = Part(
    title="The paper's methods, Cox",
    cost="passes",
    objective="gap / gap at the start",
    contenders={
        "L-BFGS, whole data set": partial(fit, "lbfgs", {}),
        "SOX": partial(fit, "sox-updated", {"lr": 1.0, "decay": 1.0}),
        "MSVRM-v3": partial(fit, "msvrm-v3", {"lr": 0.3, "alpha": 1.0, "beta": 1.0}),
        "SVRG, its two-point form": partial(fit, "svrg", {"lr": 0.3}),
    },
    shown=(1, 10, 100),
    emphasis=("MSVRM-v3", "SVRG, its two-point form"),
)
