"""fcco's optimizers: every method of the registry, and variants of some."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from fcco.methods import REGISTRY, Entry, cosine_gain
from fcco.optim import by_name
from fcco.problem import ScaledObjective
from fcco.updates import Adam, Normalized, Plain, Update
from fcco_lab.benchmark.problem import Problem
from fcco_lab.benchmark.ranges import Log, Range, Uniform
from fcco_lab.benchmark.solver import Solver
from fcco_lab.benchmark.task import Task

__all__ = ["optimizers"]

_UPDATES: dict[str, type[Update]] = {"plain": Plain, "normalized": Normalized, "adam": Adam}

_RANGES: Mapping[str, Range] = {
    "lr": Log(0.1, 3.0),
    "decay": Log(0.3, 30.0),
    "alpha": Uniform(0.1, 1.0),
    "beta": Uniform(0.2, 1.0),
}
_ANCHORED: Mapping[str, Range] = {
    "lr": Log(0.2, 3.0),
    "alpha": Uniform(0.5, 1.0),
    "beta": Uniform(0.7, 1.0),
}
"""With exact passes the noise goes to 0 by itself, and the step size stays."""
_NO_DECAY = 1e9


def run_optimizer(
    task: Task,
    *,
    method: str,
    lr: float,
    decay: float,
    update: str = "plain",
    every: float = 2.0,
    cosine: bool = False,
    **settings: Any,
) -> None:
    """Steps of a method of the registry, with exact passes where it has them.

    Args:
        task: the task.
        method: its name.
        lr: in units of 1 / curvature for plain steps, else the length or scale of a step.
        decay: passes after which the step size is halved.
        update: the step rule.
        every: passes of work between two exact passes.
        cosine: whether beta falls along a cosine over the first half of the budget.
        settings: further coefficients of the method.
    """
    size = lr * task.lr_unit if update == "plain" else lr
    rule = _UPDATES[update]()
    opt = by_name(method, task.params, task.objective, lr=size, update=rule, **settings)
    last = 0.0
    for batch in task.batches():
        due = opt.method.anchored and task.passes - last >= every
        if opt.snapshot_due or due:
            opt.snapshot(task.exact())
            last = task.passes
        for group in opt.param_groups:
            group["lr"] = task.decayed(size, decay)
            if cosine:
                group["beta"] = cosine_gain(int(task.passes), int(task.meter.limit / 2))
        opt.step(task.closure(batch))


def _has_pairs(problem: Problem) -> bool:
    return problem.paired is not None


def _draws_blocks(problem: Problem) -> bool:
    """Else BSGD is the loss of a batch, which is there already."""
    return problem.sampling == "blocks"


def _is_logarithm(problem: Problem) -> bool:
    """SCENT's rule is made for f = log of one exponential sum."""
    objective = problem.objective()
    return isinstance(objective, ScaledObjective) and objective.inner_dim == 1


def _of_entry(entry: Entry, **fixed: Any) -> Solver:
    """The solver of a method; coefficients that it does not have are not tuned."""
    ranges = {
        name: range_
        for name, range_ in (_ANCHORED if entry.method.anchored else _RANGES).items()
        if name == "decay" or (name in entry.coefficients and name not in fixed)
    }
    applies = Solver.applies
    if entry.method.needs_pair:
        applies = _has_pairs
    elif entry.name == "bsgd":
        applies = _draws_blocks
    return Solver(
        partial(run_optimizer, method=entry.name, **fixed),
        ranges,
        {"lr": 0.3, "decay": _NO_DECAY},
        applies=applies,
        today=entry.name == "bsgd",
        paired=entry.method.needs_pair,
    )


def _with_rule(solver: Solver, *, update: str, lr: float) -> Solver:
    """The same with another step rule, whose step sizes need no unit."""
    return replace(
        solver,
        run=partial(solver.run, update=update),
        ranges={**solver.ranges, "lr": Log(1e-3, 0.3)},
        default={**solver.default, "lr": lr},
    )


def optimizers() -> dict[str, Solver]:
    """All methods of the registry by name, then variants."""
    plain = {name: _of_entry(entry) for name, entry in REGISTRY.items()}
    updated = partial(_of_entry, REGISTRY["sox"], updated_slopes=True)
    auto = updated(beta="auto")
    variants = {
        "sox-updated": updated(),
        "sox-auto": auto,
        "sox-adam": _with_rule(auto, update="adam", lr=1e-3),
        "sox-cosine": updated(beta=1.0, cosine=True),
        "sox-scent": replace(updated(beta=("scent", 0.0)), applies=_is_logarithm),
        "msvrm-v2-normalized": _with_rule(plain["msvrm-v2"], update="normalized", lr=1e-2),
        "msvrm-v2-adam": _with_rule(plain["msvrm-v2"], update="adam", lr=1e-3),
    }
    return {**plain, **variants}
