"""When DDP and FSDP2 reduce gradients, and when FSDP2 lets go of what it gathered."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

__all__ = ["Reduction"]


class Reduction:
    """One reduction a step: all points accumulate in ``.grad``, and only the last one is averaged.

    The optimizer is given parameters, not modules, so the distributed modules are noted as a
    closure calls them. A step that does not know them yet reduces at every point, which gives the
    same sum.

    Args:
        active: whether ``torch.distributed`` is set up.
        defer: see ``Ranks``.
    """

    def __init__(self, *, active: bool, defer: bool = True) -> None:
        self.active = active
        self.defer = defer
        self.replicated: list[Any] = []
        """Modules of ``DistributedDataParallel``."""
        self.sharded: list[Any] = []
        """Modules of ``fully_shard``."""

    @contextmanager
    def around(self, *, last: bool, backward: bool) -> Iterator[None]:
        """Around one call of a closure and its backward pass.

        Args:
            last: whether gradients are to be averaged now.
            backward: whether there is a backward pass.
        """
        if not self.active:
            yield
            return
        with ExitStack() as stack:
            if self.replicated or self.sharded:
                if backward and self.defer and not last:
                    stack.enter_context(self._apart())
            else:
                hook = register_module_forward_pre_hook(self._note)
                stack.callback(hook.remove)
            yield
        if not backward:
            # Its backward pass would have done it. Kept, they would be taken for the parameters
            # of the next point.
            for module in self.sharded:
                module.reshard()

    @contextmanager
    def _apart(self) -> Iterator[None]:
        with ExitStack() as stack:
            for module in self.replicated:
                stack.enter_context(module.no_sync())
            for module in self.sharded:
                module.set_requires_gradient_sync(False, recurse=False)
                stack.callback(module.set_requires_gradient_sync, True, recurse=False)
            yield

    def _note(self, module: nn.Module, inputs: Any) -> None:
        from torch.distributed.fsdp import FSDPModule
        from torch.nn.parallel import DistributedDataParallel

        if isinstance(module, DistributedDataParallel) and module not in self.replicated:
            self.replicated.append(module)
        elif isinstance(module, FSDPModule):
            within = (part for part in module.modules() if isinstance(part, FSDPModule))
            self.sharded.extend(part for part in within if part not in self.sharded)
