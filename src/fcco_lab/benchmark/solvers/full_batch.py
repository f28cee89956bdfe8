"""L-BFGS on the whole objective."""

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from fcco_lab.benchmark.solver import Solver
from fcco_lab.benchmark.task import Task

__all__ = ["FULL_BATCH"]

_REMEMBERED = 30
"""Points of the last line searches whose loss is known."""


def lbfgs(task: Task, *, history: int) -> None:
    """torch's L-BFGS with a strong Wolfe line search, one iteration at a time.

    Every call of ``step`` asks for the loss where the last one ended; it is remembered, so that it
    is paid for once.
    """
    opt = torch.optim.LBFGS(
        task.params,
        max_iter=1,
        max_eval=_REMEMBERED,
        history_size=history,
        tolerance_grad=0.0,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )
    known: list[tuple[Tensor, Tensor, list[Tensor]]] = []

    def closure() -> Tensor:
        here = parameters_to_vector(task.params).detach()
        if not any(torch.equal(here, there) for there, *_ in known):
            value = task.full_loss()
            gradients = torch.autograd.grad(
                value, task.params, allow_unused=True, materialize_grads=True
            )
            known.insert(0, (here, value.detach(), list(gradients)))
            del known[_REMEMBERED:]
        found = next(entry for entry in known if torch.equal(here, entry[0]))
        for p, gradient in zip(task.params, found[2], strict=True):
            p.grad = gradient.clone()
        return found[1]

    while task.goes_on():
        before = task.meter.forward
        opt.step(closure)
        if task.meter.forward == before:  # it has converged to the last digit
            return


FULL_BATCH = {"lbfgs": Solver(lbfgs, default={"history": 50}, today=True)}
