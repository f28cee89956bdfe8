"""The processes that ``torchrun`` started: meeting, agreeing, and dividing a network."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from fcco.distributed import Ranks
from fcco.distributed.sharded import cut, is_sharded

__all__ = [
    "PARALLEL",
    "align_buffers",
    "all_reduce_max",
    "distribute",
    "process_group",
    "release",
    "shard_optimizer_state",
    "whole_weights",
]

PARALLEL = ("ddp", "fsdp")
"""A whole network on every rank, or a part of its parameters on each; the result is the same."""


@contextmanager
def process_group() -> Iterator[None]:
    """Join the other processes of ``torchrun``, and leave them on every way out.

    Where there are none, nothing happens.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "MASTER_ADDR" not in os.environ:
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    # torchrun keeps one store for all its restarts: under the old names there are the addresses
    # of processes that are gone.
    api: Any = dist  # which does not say what it exports
    store, rank, size = next(api.rendezvous("env://"))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = api.PrefixStore(f"attempt-{attempt}", store)
    dist.init_process_group(store=store, rank=rank, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()


def all_reduce_max(device: str | torch.device, *numbers: int) -> list[int]:
    """The largest that any rank has of each number.

    Examples:
        >>> all_reduce_max("cpu", 3, 0)
        [3, 0]
    """
    if Ranks().size == 1:
        return list(numbers)
    largest = torch.tensor(numbers, dtype=torch.int64, device=device)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return [int(number) for number in largest.tolist()]


def distribute(model: nn.Module, parallel: str) -> nn.Module:
    """What the steps of a run are to call; ``model`` itself is for everything else.

    With FSDP2 its parameters are other ones afterwards: build the optimizer then.

    Args:
        model: the same on all ranks.
        parallel: one of ``PARALLEL``.
    """
    size = Ranks().size
    if size == 1:
        return model
    if parallel == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(next(model.parameters()).device.type, (size,))
    for part in model.children():
        is_called = not isinstance(part, nn.ModuleList | nn.ModuleDict)
        if is_called and any(True for _ in part.parameters()):
            fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def release(model: nn.Module) -> None:
    """Let FSDP2 forget the parameters that it gathered to evaluate."""
    if Ranks().size == 1:
        return
    from torch.distributed.fsdp import FSDPModule

    for part in model.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def align_buffers(model: nn.Module) -> None:
    """Give all ranks the buffers of the first, whose running statistics are those of its batches.

    DDP does so before it computes; FSDP2 does not, and what is saved and shown is of the first.
    """
    if Ranks().size > 1:
        for buffer in model.buffers():
            dist.broadcast(buffer, 0)


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """The state of ``model`` as one process has it; all ranks must ask."""
    return {
        name: value.full_tensor().cpu() if is_sharded(value) else value
        for name, value in model.state_dict().items()
    }


def shard_optimizer_state(opt: torch.optim.Optimizer, saved: dict[str, Any]) -> dict[str, Any]:
    """A whole ``state_dict``, of which what belongs to a parameter is cut as that is."""
    params = [p for group in opt.param_groups for p in group["params"]]
    state = {
        key: {
            name: cut(value, params[key])
            if isinstance(value, Tensor) and value.shape == params[key].shape
            else value
            for name, value in entry.items()
        }
        for key, entry in saved["state"].items()
    }
    return {**saved, "state": state}
