"""Losses of other libraries, if they are installed: torchsurv and LibAUC, with Adam.

They are taken where they have the very objective of the problem.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from fcco.objectives import AveragePrecision, Cox, PartialAUC, SquaredHinge
from fcco_lab.benchmark.problem import Problem
from fcco_lab.benchmark.ranges import Choice
from fcco_lab.benchmark.solver import Solver
from fcco_lab.benchmark.solvers.batch_losses import ADAM, NO_DECAY, descend
from fcco_lab.benchmark.task import Task

__all__ = ["OTHER_LIBRARIES"]


def torchsurv(task: Task, *, lr: float, decay: float) -> None:
    """The Cox loss of a batch; a batch without an event is skipped."""
    times, events = task.problem.labels
    cox = import_module("torchsurv.loss.cox").neg_partial_log_likelihood

    def loss(index: Tensor) -> Tensor:
        scores = task.model(task.inputs(index))
        if not events[index].any():
            return task.with_penalty(0 * scores.sum())
        torch.set_default_dtype(torch.float32)  # it casts to float32, and adds to the default
        try:
            value = cox(scores, events[index], times[index], ties_method="efron")
        finally:
            torch.set_default_dtype(torch.float64)
        return task.with_penalty(value)

    descend(task, loss, adam=True, lr=lr, decay=decay)


def libauc(task: Task, *, lr: float, decay: float, gamma: float) -> None:
    """SOAP and SOPAs: the remembering loss of LibAUC; a batch without a positive is skipped.

    ``gamma`` is its name of beta.
    """
    (labels,) = task.problem.labels
    objective: Any = task.objective
    losses = import_module("libauc.losses")
    if isinstance(objective, AveragePrecision):
        criterion = losses.APLoss(len(labels), gamma=gamma)
    else:
        temperature = objective.temperature
        criterion = losses.pAUC_DRO_Loss(len(labels), gamma=gamma, Lambda=temperature)

    def loss(index: Tensor) -> Tensor:
        scores, y = task.model(task.inputs(index)), labels[index]
        if y.all() or not y.any():
            return task.with_penalty(0 * scores.sum())
        return task.with_penalty(criterion(scores, y, index))

    descend(task, loss, adam=True, lr=lr, decay=decay)


def _has_torchsurv(problem: Problem) -> bool:
    return find_spec("torchsurv") is not None and isinstance(problem.objective(), Cox)


def _has_libauc(problem: Problem) -> bool:
    objective = problem.objective()
    return (
        find_spec("libauc") is not None
        and isinstance(objective, AveragePrecision | PartialAUC)
        and objective.surrogate == SquaredHinge()
    )


OTHER_LIBRARIES = {
    "torchsurv": Solver(
        torchsurv, ADAM, {"lr": 1e-3, "decay": NO_DECAY}, applies=_has_torchsurv, today=True
    ),
    "libauc": Solver(
        libauc,
        {**ADAM, "gamma": Choice(0.1, 0.5, 0.9)},
        {"lr": 1e-3, "decay": NO_DECAY, "gamma": 0.9},
        applies=_has_libauc,
        today=True,
    ),
}
