"""What torch offers no public way for, in one place. Tried with the releases named in ``TRIED``.

``DistributedDataParallel`` and ``fully_shard`` assume one forward and one backward pass per step. A
step that visits several points, or that fails half-way, has to ask them what they are waiting for,
and to make them let go of it.
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

TRIED = ("2.13",)
"""The releases of torch with which the tests of this package were run."""


def active_ddp() -> DistributedDataParallel | None:
    """Return the DDP module whose forward pass is running, or None."""
    wrapper: DistributedDataParallel | None = DistributedDataParallel._get_active_ddp_module()
    return wrapper


def exclude_from_broadcast(wrapper: DistributedDataParallel, names: Iterable[str]) -> None:
    """Keep DDP from broadcasting these buffers before every forward pass."""
    wrapper.parameters_to_ignore |= set(names)
    # What is left may be nothing, and DDP broadcasts what its list from before says.
    wrapper._assign_modules_buffers()


def has_ddp_averaged(module: Any) -> bool:
    """Return whether DDP has averaged what the last backward pass gave it."""
    try:
        module._check_reducer_finalized()
    except RuntimeError:
        return False
    return True


def discard_ddp_gradients(module: Any) -> None:
    """Make DDP forget a backward pass that broke off: it waits for the rest of it."""
    if not has_ddp_averaged(module):
        module.reducer._reset_state()


def discard_fsdp_gradients(module: Any) -> None:
    """Make FSDP2 forget a backward pass that broke off.

    It keeps gradients with its gathered parameters, where ``.grad`` does not show them.
    """
    state = module._get_fsdp_state()
    if state._is_root and hasattr(module, "reset_iter_state"):
        module.reset_iter_state()
    for group in getattr(state, "_fsdp_param_groups", ()):
        for param in group.fsdp_params:
            if "unsharded_accumulated_grad" in vars(param):  # in older releases
                param.unsharded_accumulated_grad = None
            if hasattr(param, "_unsharded_param"):
                param._unsharded_param.grad = None
