"""A loss that remembers: when it writes, with whom it shares a batch, how precise its table is."""

import sys
import warnings
from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from fcco.distributed import Ranks
from fcco.distributed.internals import active_ddp, exclude_from_broadcast
from fcco.losses.fingerprint import fingerprint
from fcco.optim.arguments import user_stacklevel

__all__ = ["Criterion"]


class Criterion(nn.Module):
    """Base class of losses with a memory, a table in buffers that is equal on all ranks.

    It is written only in training mode with gradients enabled. Any other call warns: its value
    contains what the table remembers of the training set, so it is not a validation loss.
    """

    _table: ClassVar[str]
    """The path of the buffer that follows ``.to(dtype)``; other numbers keep their precision."""

    _validate_with: ClassVar[str] = "criterion.exact(...) of all samples of that set"
    """What the value of other samples than those of the training set is computed with."""

    ranks: Ranks | None = None
    """Those that train together: None stands for all of ``torch.distributed``, if it is set up."""

    _ddp_id: int | None = None

    fingerprint: Tensor
    """What the table was built from, as one number: a state of another table is refused."""

    def __init__(self, *made_of: Any) -> None:
        super().__init__()
        self.register_buffer("fingerprint", fingerprint(*made_of))

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load buffers, if they belong to a table of the same labels and settings."""
        flaw = self._find_flaw(state, prefix)
        if flaw is not None:
            args[-1].append(f"{prefix or type(self).__name__}: {flaw}")
            # torch goes on with the submodules, the table among them: they keep what they have.
            for key in [key for key in state if key.startswith(prefix)]:
                del state[key]
            state.update(self.state_dict(prefix=prefix))
        super()._load_from_state_dict(state, prefix, *args)

    def _find_flaw(self, state: dict[str, Any], prefix: str) -> str | None:
        """Return why a state cannot be loaded, or None."""
        found = state.get(f"{prefix}fingerprint")
        if found is None and f"{prefix}{self._table}" in state:
            return "the table has no fingerprint of its labels (saved by 0.2?)"
        if isinstance(found, Tensor) and not found.cpu().equal(self.fingerprint.cpu()):
            return (
                "the table belongs to other labels, to another order of the samples, or to other "
                "settings than this loss was built with (for inference alone, load a module "
                "without a criterion and with strict=False)"
            )
        return None

    def __init_subclass__(cls) -> None:
        """A forward pass reads numbers from its table and writes to it: it is never compiled."""
        super().__init_subclass__()
        if "forward" in cls.__dict__:
            # As torch.optim does it: torch.compiler.disable would load the compiler here and now.
            cls.forward = torch._disable_dynamo(cls.__dict__["forward"])  # type: ignore[attr-defined]

    @property
    def _writes(self) -> bool:
        """Whether a batch is remembered: not in eval mode, nor without gradients."""
        return self.training and torch.is_grad_enabled()

    def _together(self) -> Ranks | None:
        """The ranks to exchange batches with; None where there is nothing to exchange.

        Every forward pass begins with it, so this is where one that trains nothing is noticed.
        """
        if not self._writes:
            self._warn_of_validation()
            return None
        ranks = self.ranks or Ranks()
        if ranks.size == 1:
            return None
        if (wrapper := active_ddp()) is not None:
            self._exclude_from_ddp_broadcast(wrapper)
        return ranks

    def _warn_of_validation(self) -> None:
        """Warn that the value is not one of a validation set, unless a pass is only a first one."""
        if self.training and _in_reentrant_checkpoint():
            return
        warnings.warn(
            f"{type(self).__name__} was called in eval mode or without gradients. Its value "
            "contains the labels or values that it remembers of the training set: it is not a "
            f"validation loss. For another data set use {self._validate_with}.",
            stacklevel=user_stacklevel(),
        )

    def _exclude_from_ddp_broadcast(self, wrapper: DistributedDataParallel) -> None:
        """Keep DDP, which calls a module that holds this one, from broadcasting the table.

        It broadcasts all buffers before every forward pass but those it is told to ignore. The
        tables are equal on all ranks without it.
        """
        if self._ddp_id == id(wrapper):
            return
        for path, module in wrapper.module.named_modules():
            if module is self:
                names = [name for name, _ in self.named_buffers(prefix=path)]
                exclude_from_broadcast(wrapper, names)
        self._ddp_id = id(wrapper)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        """Move, with at least float32 for the table, and all else as precise as it is."""
        buffers = [(part, name) for part in self.modules() for name in part._buffers]
        before = [part._buffers[name] for part, name in buffers]
        table = self.get_buffer(self._table)
        if table.is_meta and not fn(table).is_meta:
            raise NotImplementedError(
                f"{type(self).__name__} cannot leave the meta device, where its table and what it "
                "was built from are lost: build it on the device where it is used"
            )
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for (part, name), tensor in zip(buffers, before, strict=True):
            moved = part._buffers[name]
            if tensor is not None and moved is not None and tensor.is_floating_point():
                widened = torch.promote_types(moved.dtype, torch.float32)
                dtype = widened if tensor is table else tensor.dtype
                part._buffers[name] = tensor.to(moved.device, dtype)
        return self


def _in_reentrant_checkpoint() -> bool:
    """Whether this is the first pass of a reentrant checkpoint, which has no gradients.

    The second pass of the same batch, during the backward pass, has them and trains. Nothing but
    the stack tells such a first pass from an evaluation.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            return True
    return False
