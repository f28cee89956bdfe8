"""When DDP and FSDP2 reduce gradients, and when FSDP2 lets go of what it gathered."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from fcco.distributed.internals import (
    discard_ddp_gradients,
    discard_fsdp_gradients,
    has_ddp_averaged,
)

__all__ = ["Reduction"]


class Reduction:
    """One reduction per step: all points accumulate in ``.grad``, and only the last is averaged.

    The optimizer is given parameters, not modules, so the distributed modules are noted as the
    first closure calls them.

    Args:
        active: whether ``torch.distributed`` is set up.
        defer: see ``Ranks``.
    """

    def __init__(self, *, active: bool, defer: bool = True) -> None:
        self.active = active
        self.defer = defer
        self.modules: dict[Any, None] = {}
        """Those of ``DistributedDataParallel`` and ``fully_shard``."""

    @contextmanager
    def around(self, *, last: bool) -> Iterator[None]:
        """Around one call of a closure and its backward pass, if it has one.

        Args:
            last: whether gradients are to be averaged now.
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
                hook = register_module_forward_pre_hook(
                    lambda module, inputs: self._note(module, apart, stack)
                )
                stack.callback(hook.remove)
            yield
            if last:
                self._check_finished()

    def forget(self) -> None:
        """Drop what was held back: after an error, gradients of a step that did not take place."""
        for module in self.modules:
            if _is_fsdp(module):
                discard_fsdp_gradients(module)
            else:
                discard_ddp_gradients(module)

    def _check_finished(self) -> None:
        """Raise if DDP waits for a gradient that will not come: it has averaged nothing."""
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
        for module in called.modules():
            if isinstance(module, DistributedDataParallel | FSDPModule):
                self.modules[module] = None
                _enter(module, apart, stack)


def _is_fsdp(module: Any) -> bool:
    return hasattr(module, "reshard")


def _enter(module: Any, apart: bool, stack: ExitStack) -> None:
    if not _is_fsdp(module):
        if apart:
            stack.enter_context(module.no_sync())
        return
    # After a forward pass without a backward pass FSDP2's root keeps what it gathered, and would
    # take it for the parameters of the next point.
    module.reshard()
    stack.callback(module.reshard)
    if apart:
        module.set_requires_gradient_sync(False, recurse=False)
        stack.callback(module.set_requires_gradient_sync, True, recurse=False)
