"""The optimizers of fcco as torch's tests call optimizers.

Those tests build an optimizer from parameters alone, and step with gradients that lie in ``.grad``
or with a closure that returns a loss. Here the problem is one block with f(u) = u, and the inner
value is the loss, or the linear function whose gradient ``.grad`` is. The gradient that a step sees
is then the one that torch's test made, at every point that the method evaluates.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import torch
from torch import Tensor

import fcco
from fcco.methods import REGISTRY
from fcco.problem import Objective, Probe
from fcco.problem.batches import NoBlocks


class OneBlock(Objective):
    """F(w) = g(w)."""

    num_blocks = 1
    inner_dim = 1

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        return u[:, 0]


class PlainOptimizer(fcco.CompositionalOptimizer):
    """A method of the registry, with ``step`` as torch's tests call it."""

    name: ClassVar[str]

    def __init__(self, params: Any, lr: float = 1e-2, **settings: Any) -> None:
        entry = REGISTRY[self.name]
        # Some of torch's tests give tensors that need no gradient, which we would refuse.
        for p in params if isinstance(params, list) else ():
            if isinstance(p, Tensor) and p.is_leaf:
                p.requires_grad_()
        every = 5 if entry.method.anchored else None
        settings = entry.arguments(lr=lr, snapshot_every=every, **settings)
        super().__init__(params, OneBlock(), entry.method, **settings)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        params = [p for group in self.param_groups for p in group["params"]]
        given = [p.grad for p in params]
        results: list[Any] = []

        def probe() -> Probe:
            grads = given
            if closure is not None:
                # A step adds up the gradients of its points in .grad, which a closure of torch's
                # empties and writes anew.
                kept = [p.grad for p in params]
                for p in params:
                    p.grad = None
                with torch.enable_grad():
                    results.append(closure())
                if any(p.grad is not None for p in params):
                    grads = [p.grad for p in params]
                for p, grad in zip(params, kept, strict=True):
                    p.grad = grad
            terms = [
                (grad.detach() * p).sum()
                for p, grad in zip(params, grads, strict=True)
                if grad is not None
            ]
            if not terms:
                raise NoBlocks
            value = torch.stack(terms).sum().view(1, 1)
            return Probe(torch.tensor([0]), value, pair=value.clone())

        with suppress(NoBlocks):  # without a gradient there is nothing to do
            if self.snapshot_due:
                self.snapshot(probe)
            super().step(probe)
        return results[0] if results else None


ADAPTED = [type(name, (PlainOptimizer,), {"name": name}) for name in REGISTRY]

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "non-default lr": {"lr": 0.001},
    "weight decay": {"weight_decay": 0.1},
    "Adam": {"update": fcco.updates.Adam()},
    "AMSGrad": {"update": fcco.updates.AMSGrad(), "weight_decay": 0.1},
    "normalized": {"update": fcco.updates.Normalized()},
}
