"""How a run is spread over the processes that ``torchrun`` started, and its network with it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fcco.distributed import Ranks
from fcco.distributed.sharded import cut, is_sharded
from fcco_lab.choices import choose
from fcco_lab.training.crew import Crew, step_aside

__all__ = [
    "PARALLEL",
    "align_buffers",
    "lay_out_state",
    "process_group",
    "release",
    "said_once",
    "spread",
    "whole_weights",
]

PARALLEL = ("ddp", "fsdp")
"""A whole network on every rank, or a part of its parameters on each; the result is the same."""


def _launched() -> bool:
    """Whether this is one of several processes that have an address to meet at."""
    told = all(name in os.environ for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"))
    return told and int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def said_once() -> Iterator[None]:
    """Around what fails on all processes of a machine or on none: the first of them says it."""
    try:
        yield
    except Exception:
        if _launched() and os.environ.get("LOCAL_RANK", "0") != "0":
            step_aside()
        raise


@contextmanager
def process_group(device: str) -> Iterator[None]:
    """Join the other processes of ``torchrun``, and leave them on every way out.

    Where there are none, nothing happens.
    """
    if not _launched() or torch.distributed.is_initialized():
        yield
        return
    with said_once():
        place = torch.device(device)
        if place.index is not None:
            raise ValueError(
                f"device must be {place.type!r}, without a number: every process takes its own"
            )
        if place.type == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    _meet("nccl" if place.type == "cuda" else "gloo")
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def _meet(backend: str) -> None:
    dist: Any = torch.distributed  # which does not say what it exports
    store, rank, size = next(dist.rendezvous("env://"))
    # torchrun keeps one store for all its restarts: under the old names there are the addresses
    # of processes that are gone.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = dist.PrefixStore(f"attempt-{attempt}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)


def spread(model: nn.Module, parallel: str) -> nn.Module:
    """What the steps of a run are to call; ``model`` itself is for everything else.

    With FSDP2 its parameters are other ones afterwards: build the optimizer then.

    Args:
        model: the same on all ranks.
        parallel: one of ``PARALLEL``.
    """
    choose("parallel", parallel, PARALLEL)
    size = Ranks().size
    if size == 1:
        return model
    if parallel == "ddp":
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(next(model.parameters()).device.type, (size,))
    for part in model.children():
        lists = isinstance(part, nn.ModuleList | nn.ModuleDict)  # which no one calls
        if not lists and any(True for _ in part.parameters()):
            fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def release(model: nn.Module) -> None:
    """Let FSDP2 forget the parameters that it gathered to evaluate."""
    if any(is_sharded(p) for p in model.parameters()):
        from torch.distributed.fsdp import FSDPModule

        for part in model.modules():
            if isinstance(part, FSDPModule):
                part.reshard()


def align_buffers(model: nn.Module, crew: Crew) -> None:
    """Give all ranks the buffers of the first, whose running statistics are those of its batches.

    DDP does so before it computes; FSDP2 does not, and what is saved and shown is of the first.
    """
    if crew.size > 1:
        for buffer in model.buffers():
            torch.distributed.broadcast(buffer, 0)


def whole_weights(model: nn.Module, *, keep: bool) -> dict[str, Tensor]:
    """The state of ``model`` as one process has it; all ranks must ask.

    Args:
        keep: whether this rank is to have it.
    """
    weights = {}
    for name, value in model.state_dict().items():
        if is_sharded(value):
            value = value.full_tensor().cpu()
        if keep:
            weights[name] = value
    return weights


def lay_out_state(opt: torch.optim.Optimizer, saved: dict[str, Any]) -> dict[str, Any]:
    """An optimizer's ``saved`` state, of which what belongs to a parameter is cut as that is."""
    params = [p for group in opt.param_groups for p in group["params"]]
    state = {}
    for key, entry in saved["state"].items():
        like = params[key]
        state[key] = {
            name: cut(value, like)
            if isinstance(value, Tensor) and value.shape == like.shape
            else value
            for name, value in entry.items()
        }
    return {**saved, "state": state}
