"""How far u and z are from what they estimate, by an exact pass."""

from typing import Any

import torch
from torch import nn

from fcco.data import exact_pass
from fcco.distributed.sharded import global_norm
from fcco.optim import MSVRM, CompositionalOptimizer
from fcco.problem import SampledObjective

__all__ = ["diagnose"]


def diagnose(
    opt: CompositionalOptimizer,
    model: nn.Module,
    inputs: Any,
    objective: SampledObjective,
    *,
    chunk_size: int = 1024,
) -> dict[str, float]:
    """The mean over blocks of ||u - g(w)||^2, ||z - grad F(w)|| and ||grad F(w)||.

    u and z belong to the step before, w is where the step ended: the three are those of w_t only up
    to one step, which is how a run would be monitored. The pass runs in the mode the model is in:
    with BatchNorm in training mode "exact" means over chunks.

    Examples:
        >>> from fcco.objectives import MultiTaskAUC
        >>> from fcco.optim import by_name
        >>> objective = MultiTaskAUC(torch.tensor([0, 1, 2, 0, 1, 2]))
        >>> inputs, model = torch.rand(6, 2), torch.nn.Linear(2, 3)
        >>> sorted(diagnose(by_name("sox", model, objective, lr=0.1), model, inputs, objective))
        ['estimator', 'gradient', 'tracking']
    """
    # The first snapshot of version 3 fills its table with g(w), and its anchor is grad F(w).
    exact = MSVRM(model, objective, version=3, lr=1.0)
    exact.snapshot(exact_pass(model, inputs, objective, chunk_size=chunk_size))
    params = [p for group in opt.param_groups for p in group["params"] if p.requires_grad]
    gradient = [exact.state[p]["anchor"] for p in params]
    errors = [opt.state[p]["z"] - exact.state[p]["anchor"] for p in params]
    result = {"gradient": float(global_norm(gradient)), "estimator": float(global_norm(errors))}
    if opt.table is not None and exact.table is not None:
        blocks = torch.arange(objective.num_blocks)
        error = opt.table.read(blocks) - exact.table.read(blocks)
        result["tracking"] = float(error.square().sum(1).mean())
    return result
