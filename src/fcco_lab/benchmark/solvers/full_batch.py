"""L-BFGS on the whole objective."""

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from fcco_lab.benchmark.solver import Solver
from fcco_lab.benchmark.task import Task

__all__ = ["FULL_BATCH"]


def lbfgs(task: Task, *, history: int) -> None:
    """torch's L-BFGS with a strong Wolfe line search, one iteration at a time.

    Every call of ``step`` asks for the loss where the last one ended; it is remembered, so that it
    is paid for once.
    """
    opt = torch.optim.LBFGS(
        task.params,
        max_iter=1,
        max_eval=30,
        history_size=history,
        tolerance_grad=0.0,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )
    known: list[tuple[Tensor, Tensor, list[Tensor]]] = []

    def closure() -> Tensor:
        here = parameters_to_vector(task.params).detach()
        for there, value, gradients in known:
            if torch.equal(here, there):
                break
        else:
            value = task.full_loss()
            gradients = list(
                torch.autograd.grad(value, task.params, allow_unused=True, materialize_grads=True)
            )
            value = value.detach()
            known.insert(0, (here, value, gradients))
            del known[30:]
        for p, gradient in zip(task.params, gradients, strict=True):
            p.grad = gradient.clone()
        return value

    while task.goes_on():
        before = task.meter.forward
        opt.step(closure)
        if task.meter.forward == before:  # it has converged to the last digit
            return


FULL_BATCH = {"lbfgs": Solver(lbfgs, default={"history": 50}, today=True)}
