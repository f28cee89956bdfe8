"""When DDP and FSDP2 reduce gradients, and when FSDP2 lets go of what it gathered."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

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
        """Drop what was held back: after an error, gradients of a step that did not take place.

        DDP waits for the rest of a backward pass that broke off; so does FSDP2, which also keeps
        gradients with its gathered parameters, where ``.grad`` does not show them. There is no
        public way to let go of them, and older releases have none to begin anew.
        """
        for module in self.modules:
            if not hasattr(module, "reshard"):
                if not _finished(module):
                    module.reducer._reset_state()
                continue
            state = module._get_fsdp_state()
            if state._is_root and hasattr(module, "reset_iter_state"):
                module.reset_iter_state()
            for group in getattr(state, "_fsdp_param_groups", ()):
                for param in group.fsdp_params:
                    if "unsharded_accumulated_grad" in vars(param):  # in older releases
                        param.unsharded_accumulated_grad = None
                    if hasattr(param, "_unsharded_param"):
                        param._unsharded_param.grad = None

    def _check_finished(self) -> None:
        """DDP averages nothing while it waits for a gradient that will not come."""
        for module in self.modules:
            if not hasattr(module, "reshard") and not _finished(module):
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


def _finished(module: Any) -> bool:
    """Whether DDP has averaged what the last backward pass gave it."""
    try:
        module._check_reducer_finalized()
    except RuntimeError:
        return False
    return True


def _enter(module: Any, apart: bool, stack: ExitStack) -> None:
    if not hasattr(module, "reshard"):
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
