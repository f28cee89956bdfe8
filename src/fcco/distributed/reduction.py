"""Control over when DDP and FSDP2 reduce gradients, and when FSDP2 frees what it gathered."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from fcco.distributed.internals import (
    discard_ddp_gradients,
    discard_fsdp_gradients,
    has_ddp_averaged,
)
from fcco.distributed.sharded import is_sharded

__all__ = ["Reduction"]


class Reduction:
    """An object that makes DDP and FSDP2 reduce gradients only once per step.

    All points accumulate in ``.grad``, and only the last backward pass averages over ranks. The
    optimizer gets parameters and not modules. So the distributed modules are found when the first
    closure calls them.

    Args:
        active: whether ``torch.distributed`` is initialized.
        defer: whether to reduce only once per step, see ``Ranks``.
        group: the process group that averages.
    """

    def __init__(self, *, active: bool, defer: bool = True, group: Any = None) -> None:
        self.active = active
        self.defer = defer
        self.group = group
        self.modules: dict[Any, None] = {}
        """The modules of ``DistributedDataParallel`` and ``fully_shard``."""

    @contextmanager
    def around(self, *, last: bool) -> Iterator[None]:
        """Return a context for one call of a closure and its backward pass, if it has one.

        Args:
            last: whether gradients are averaged in this call.
        """
        if not self.active:
            yield
            return
        apart = self.defer and not last
        with ExitStack() as stack:
            if self.modules:
                for module in self.modules:
                    _enter(module, apart, stack)
            else:
                # No distributed module is known yet. A global hook finds those that are called.
                hook = register_module_forward_pre_hook(
                    lambda module, inputs: self._note(module, apart, stack)
                )
                stack.callback(hook.remove)
            yield
            if last:
                self._check_finished()

    def average(self, params: Sequence[Tensor]) -> None:
        """Average the gradients of parameters that belong to no distributed module.

        An objective that learns a threshold or temperature is mostly outside the model. Without a
        distributed module nothing is averaged, because the caller may do it.
        """
        if not self.modules:
            return
        owned = {p for module in self.modules for p in module.parameters()}
        loose = [p for p in params if p not in owned and not is_sharded(p)]
        if not loose:
            return
        # A parameter may have taken part on some ranks only. One that did on none keeps None.
        found = torch.tensor([p.grad is not None for p in loose], device=loose[0].device).int()
        dist.all_reduce(found, group=self.group)
        for p, count in zip(loose, found.tolist(), strict=True):
            if count:
                # A copy, because several gradients may be one buffer of autograd.
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad.clone()
                dist.all_reduce(p.grad, group=self.group)
                p.grad /= dist.get_world_size(self.group)

    def forget(self) -> None:
        """Discard the gradients that were not reduced yet, after an error in a step."""
        for module in self.modules:
            if _is_fsdp(module):
                discard_fsdp_gradients(module)
            else:
                discard_ddp_gradients(module)

    def _check_finished(self) -> None:
        """Raise an error if DDP still waits for a gradient, because it then averaged nothing."""
        for module in self.modules:
            if not _is_fsdp(module) and not has_ddp_averaged(module):
                unused = [name for name, p in module.module.named_parameters() if p.grad is None]
                raise ValueError(
                    f"DDP did not average the gradients: parameters {unused} took no part in the "
                    "values; freeze them, or use DistributedDataParallel(..., "
                    "find_unused_parameters=True)"
                )

    def _note(self, called: nn.Module, apart: bool, stack: ExitStack) -> None:
        from torch.distributed.fsdp import FSDPModule
        from torch.nn.parallel import DistributedDataParallel

        if called in self.modules or not isinstance(called, DistributedDataParallel | FSDPModule):
            return
        # A wrapped module may contain further wrapped modules, as with one fully_shard per layer.
        for module in called.modules():
            if isinstance(module, DistributedDataParallel | FSDPModule):
                self.modules[module] = None
                _enter(module, apart, stack)


def _is_fsdp(module: Any) -> bool:
    return hasattr(module, "reshard")


def _enter(module: Any, apart: bool, stack: ExitStack) -> None:
    if not _is_fsdp(module):
        if apart:
            # DDP decides in the forward pass whether the following backward pass reduces.
            stack.enter_context(module.no_sync())
        return
    # After a forward pass without a backward pass, FSDP2's root keeps the gathered parameters. It
    # would use them at the next point, where they are out of date.
    module.reshard()
    stack.callback(module.reshard)
    if apart:
        module.set_requires_gradient_sync(False, recurse=False)
        stack.callback(module.set_requires_gradient_sync, True, recurse=False)
