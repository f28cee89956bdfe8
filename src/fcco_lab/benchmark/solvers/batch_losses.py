"""Losses of a batch of samples with torch's optimizers: of the batch alone, or remembering."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fcco_lab.benchmark.ranges import Choice, Log, Range
from fcco_lab.benchmark.solver import Solver
from fcco_lab.benchmark.task import Task

__all__ = ["ADAM", "BATCH_LOSSES", "SGD", "descend"]

SGD: Mapping[str, Range] = {
    "lr": Log(0.1, 3.0),
    "decay": Log(0.3, 30.0),
    "momentum": Choice(0.0, 0.9),
}
ADAM: Mapping[str, Range] = {"lr": Log(1e-3, 0.3), "decay": Log(0.3, 30.0)}
"""``lr`` of SGD is in units of 1 / curvature; that of Adam needs no unit."""

NO_DECAY = 1e9


def descend(
    task: Task,
    loss: Callable[[Tensor], Tensor],
    *,
    adam: bool,
    lr: float,
    decay: float,
    momentum: float = 0.0,
    factor: int = 1,
    accumulate: bool = False,
) -> None:
    """Shuffled batches, a loss of each, and Adam or SGD.

    Args:
        task: the task.
        loss: of the positions of some samples.
        adam: Adam, else SGD; its momentum is dampened, so that ``lr`` means the same.
        lr: step size.
        decay: passes after which it is halved.
        momentum: of SGD.
        factor: batches per step.
        accumulate: one loss for each of these batches, not one for all.
    """
    if adam:
        opt: torch.optim.Optimizer = torch.optim.Adam(task.params, lr=lr)
    else:
        lr *= task.lr_unit
        opt = torch.optim.SGD(task.params, lr=lr, momentum=momentum, dampening=momentum)
    for index in task.samples(factor):
        opt.zero_grad()
        parts = index.split(task.batch) if accumulate else (index,)
        for part in parts:
            value = loss(part) * (len(part) / len(index))
            if not value.isfinite():
                raise FloatingPointError("the loss is not finite")
            if value.requires_grad:
                value.backward()
        opt.param_groups[0]["lr"] = task.decayed(lr, decay)
        opt.step()


def _of_batch(task: Task, **settings: Any) -> None:
    descend(task, task.loss_of_batch, **settings)


def _remembering(task: Task, **settings: Any) -> None:
    descend(task, task.remembering_loss, **settings)


def _entry(run: Callable[..., None], *, adam: bool, **fixed: Any) -> Solver:
    default = {"lr": 1e-3 if adam else 0.3, "decay": NO_DECAY}
    return Solver(
        partial(run, adam=adam, **fixed),
        ADAM if adam else SGD,
        default,
        today=run is _of_batch,
    )


BATCH_LOSSES = {
    "in-batch": _entry(_of_batch, adam=False),
    "in-batch-adam": _entry(_of_batch, adam=True),
    "large-batch": _entry(_of_batch, adam=True, factor=16),
    "accumulation": _entry(_of_batch, adam=True, factor=16, accumulate=True),
    "table-sgd": _entry(_remembering, adam=False),
    "table-adam": _entry(_remembering, adam=True),
}
