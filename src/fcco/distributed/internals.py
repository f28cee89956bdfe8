"""All uses of torch's private interfaces, tested with the releases named in ``TRIED``.

``DistributedDataParallel`` and ``fully_shard`` assume one forward and one backward pass per step. A
step that visits several points, or that fails half-way, must ask them what they are waiting for,
and make them discard it. torch offers no public way to do so.
"""

from collections.abc import Iterable
from typing import Any

from torch.nn.parallel import DistributedDataParallel

__all__ = [
    "TRIED",
    "active_ddp",
    "discard_ddp_gradients",
    "discard_fsdp_gradients",
    "exclude_from_broadcast",
    "has_ddp_averaged",
]

TRIED = ("2.8", "2.13", "2.15")
"""Releases of torch with which the tests of this package were run."""


def active_ddp() -> DistributedDataParallel | None:
    """Return the DDP module whose forward pass is running, or None."""
    wrapper: DistributedDataParallel | None = DistributedDataParallel._get_active_ddp_module()
    return wrapper


def exclude_from_broadcast(wrapper: DistributedDataParallel, names: Iterable[str]) -> None:
    """Keep DDP from broadcasting these buffers before every forward pass."""
    wrapper.parameters_to_ignore |= set(names)
    # DDP made its list of buffers when it was built, so the list is made again without these.
    wrapper._assign_modules_buffers()


def has_ddp_averaged(module: Any) -> bool:
    """Return whether DDP has averaged the gradients of the last backward pass."""
    try:
        module._check_reducer_finalized()
    except RuntimeError:
        return False
    return True


def discard_ddp_gradients(module: Any) -> None:
    """Make DDP discard an interrupted backward pass, the rest of which it waits for."""
    if not has_ddp_averaged(module):
        module.reducer._reset_state()


def discard_fsdp_gradients(module: Any) -> None:
    """Make FSDP2 discard an interrupted backward pass.

    FSDP2 stores gradients with its gathered parameters, where ``.grad`` does not show them.
    """
    state = module._get_fsdp_state()
    if state._is_root and hasattr(module, "reset_iter_state"):
        module.reset_iter_state()
    # torch 2.8 has one group in a module, or None.
    groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
    for group in filter(None, groups):
        for param in group.fsdp_params:
            if "unsharded_accumulated_grad" in vars(param):  # the attribute of older releases
                param.unsharded_accumulated_grad = None
            if hasattr(param, "_unsharded_param"):
                param._unsharded_param.grad = None
