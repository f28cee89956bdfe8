"""How far u and z are from what they estimate, by an exact pass."""

from typing import Any

import torch
from torch import nn

from fcco.data import BlockData, exact_pass
from fcco.distributed import Ranks
from fcco.problem.objective import Objective
from fcco.optim import CompositionalOptimizer
from fcco.optim.exact import ExactPass
from fcco.kernel.oracle import Oracle
from fcco.kernel.rows import rows_of

__all__ = ["diagnose"]


@torch.no_grad()
def diagnose(
    opt: CompositionalOptimizer,
    model: nn.Module,
    data: BlockData[Any],
    objective: Objective,
    *,
    chunk_size: int = 1024,
) -> dict[str, float]:
    """The mean over blocks of ||u - g(w)||^2, ||z - grad F(w)|| and ||grad F(w)||.

    u and z belong to the step before, w is where the step ended: the three are those of w_t only up
    to one step, which is how a run would be monitored. The pass runs in the mode the model is in:
    with BatchNorm in training mode "exact" means over chunks.
    """
    params = [p for group in opt.param_groups for p in group["params"] if p.requires_grad]
    form = rows_of(objective)
    dtype = torch.float32 if opt.table is None else opt.table.dtype
    exact_gradient = ExactPass(
        objective,
        form,
        exact_pass(model, data, objective, chunk_size=chunk_size, rank=0, world_size=1),
        ranks=Ranks.alone(),
        rows=None,
        project=opt.table is not None,
        totals=None,
        dtype=dtype,
        device=params[0].device,
    )
    with Oracle(params, list(model.buffers()), Ranks.alone().reduction, rewind=True) as oracle:
        exact = exact_gradient.run(oracle, [torch.zeros_like(p) for p in params])
    gradient = torch.stack([g.norm() for g in exact.gradients]).norm()
    result = {"gradient": float(gradient)}
    if all("z" in opt.state[p] for p in params):
        gaps = [
            (opt.state[p]["z"] - g).norm() for p, g in zip(params, exact.gradients, strict=True)
        ]
        result["estimator"] = float(torch.stack(gaps).norm())
    if opt.table is not None:
        ids = torch.arange(objective.num_blocks, device=params[0].device)
        error = (opt.table.read(ids) - exact.inner).square().sum(1)
        result["tracking"] = float(error.mean())
    return result
