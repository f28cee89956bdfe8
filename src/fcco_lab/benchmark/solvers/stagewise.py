"""The paper's stage-wise recipes, with its constants tuned."""

from functools import partial
from typing import Any

from fcco.schedules import RECIPES, Driver
from fcco_lab.benchmark.problem import Problem
from fcco_lab.benchmark.ranges import Log, Range
from fcco_lab.benchmark.solver import Solver
from fcco_lab.benchmark.task import Task, sizes_of_step

__all__ = ["STAGEWISE"]

_RANGES: dict[str, Range] = {"lr": Log(1.0, 1000.0), "mu": Log(1e-2, 1.0), "length": Log(0.01, 1.0)}


def stagewise(task: Task, *, label: str, lr: float, mu: float, length: float) -> None:
    """The recipe of a theorem: every stage halves the target gap.

    Args:
        task: the task.
        label: of the recipe in ``fcco.schedules.RECIPES``.
        lr: the constant of the step size, in units of 1 / curvature.
        mu: the PL constant.
        length: the constant of the number of steps of a stage.
    """
    blocks, samples = sizes_of_step(task.objective, task.batch)
    sizes: dict[str, Any] = {"m": task.objective.num_blocks, "B1": blocks, "mu": mu}
    if label == "thm:6":
        sizes["n"] = max(1, task.objective.num_samples // samples)
    recipe = RECIPES[label](**sizes, epsilon=1e-6, c_eta=lr * task.lr_unit, c_T=length)
    driver = Driver.build(recipe, task.params, task.objective)
    for batch in task.batches():
        if driver.finished:
            return
        if driver.snapshot_due:
            driver.opt.snapshot(task.exact())
        driver.opt.step(task.closure(batch))
        driver.step()


def _convex(problem: Problem) -> bool:
    return problem.convex


def _entry(label: str) -> Solver:
    default = {"lr": 10.0, "mu": 0.1, "length": 1.0}
    return Solver(partial(stagewise, label=label), _RANGES, default, applies=_convex)


STAGEWISE = {
    "stagewise-v2": _entry("thm:4+"),
    "stagewise-v3": _entry("thm:6"),
}
