"""How far u and z are from what they estimate, by an exact pass."""

from typing import Any

import torch
from torch import nn

from fcco.data import exact_pass
from fcco.distributed import Ranks
from fcco.distributed.sharded import global_norm
from fcco.kernel.exact import ExactPass
from fcco.kernel.gradients import GradientSum
from fcco.kernel.oracle import Oracle
from fcco.kernel.rows import Rows
from fcco.optim import CompositionalOptimizer
from fcco.problem import SampledObjective

__all__ = ["diagnose"]


@torch.no_grad()
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
    params = [p for group in opt.param_groups for p in group["params"] if p.requires_grad]
    rows, alone, device = Rows(objective), Ranks.alone(), params[0].device
    chunks = exact_pass(model, inputs, objective, chunk_size=chunk_size, rank=0, world_size=1)
    whole = ExactPass(
        objective,
        rows,
        len(chunks),
        ranks=alone,
        rows=None,
        project=opt.table is not None,
        totals=None,
        dtype=torch.float32 if opt.table is None else opt.table.dtype,
        device=device,
    )
    z = [opt.state[p]["z"] for p in params]
    gradients = GradientSum(params, z, apart=True)
    with Oracle(
        params, params, chunks, model, alone.reduction, gradients=gradients
    ) as oracle:
        exact = whole.run(oracle)
    gaps = torch._foreach_sub(z, exact.gradients)
    result = {
        "gradient": float(global_norm(exact.gradients)),
        "estimator": float(global_norm(gaps)),
    }
    if opt.table is not None:
        # Rows may be mantissas with their scale: it is the inner values that are compared.
        u, g = opt.table.read(torch.arange(objective.num_blocks)), rows.unpack(exact.inner)
        result["tracking"] = float((u.to(device) - g).square().sum(1).mean())
    return result
