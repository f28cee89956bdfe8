"""The base class of losses with a memory: when they write, and how ranks share a batch."""

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
    """Base class of losses with a memory, which is a table in buffers, equal on all ranks.

    The table is written only in training mode with gradients enabled. Any other call warns. Its
    value contains what the table remembers of the training set, so it is not a validation loss.
    """

    _table: ClassVar[str]
    """Path of the buffer that follows ``.to(dtype)``; all others keep their precision."""

    _validate_with: ClassVar[str] = "criterion.exact(...) of all samples of that set"
    """The expression to use for other samples than those of the training set, for the warning."""

    ranks: Ranks | None = None
    """The ranks that train together; None stands for all ranks of ``torch.distributed``."""

    _ddp_id: int | None = None

    _least: torch.dtype = torch.float32
    """The least precision of the table."""

    fingerprint: Tensor
    """A hash of the labels and settings of the table; a state with another hash is refused."""

    def __init__(self, *made_of: Any) -> None:
        super().__init__()
        self.register_buffer("fingerprint", fingerprint(*made_of))

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, unless the table was built from it."""
        objective = self.__dict__.get(
            "objective", self.__dict__.get("_modules", {}).get("objective")
        )
        if objective is not None and (
            name in ("objective", "sample_weight")
            # Frameworks mark all modules with a private attribute, the objective among them.
            or (name in vars(objective) and not hasattr(self, name) and name[0] != "_")
        ):
            raise AttributeError(
                f"{name} is a part of what the table was built from: build another loss"
            )
        super().__setattr__(name, value)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load buffers if they belong to a table of the same labels and settings."""
        flaw = self._find_flaw(state, prefix)
        if flaw is not None:
            args[-1].append(f"{prefix or type(self).__name__}: {flaw}")
            # torch continues with the submodules, which include the table. Replacing the state by
            # the current one makes them keep what they have.
            for key in [key for key in state if key.startswith(prefix)]:
                del state[key]
            state.update(self.state_dict(prefix=prefix))
        for name, buffer in self.named_buffers(prefix.removesuffix(".")):
            # The loss decides about precision, not the state, also with ``assign=True``: a table
            # in half precision would round every score.
            if isinstance(state.get(name), Tensor):
                state[name] = state[name].to(buffer.dtype)
        super()._load_from_state_dict(state, prefix, *args)

    def _find_flaw(self, state: dict[str, Any], prefix: str) -> str | None:
        """Return the reason why a state cannot be loaded, or None."""
        found = state.get(f"{prefix}fingerprint")
        if found is None and f"{prefix}{self._table}" in state:
            return "the table has no fingerprint of its labels (saved by 0.2?)"
        if isinstance(found, Tensor) and not found.cpu().equal(self.fingerprint.cpu()):
            return (
                "the table belongs to other labels, to another order of the samples, or to other "
                "settings than this loss was built with (for inference alone, load a module "
                "without a criterion and with strict=False)"
            )
        # A table without the sums or counts that belong to it would silently give wrong values.
        learned = {f"{prefix}{name}" for name, _ in self.named_parameters()}
        mine = self.state_dict(prefix=prefix).keys() - learned
        missing = mine - state.keys()
        if missing and missing != mine:
            return f"the state has a part of the table only, without {sorted(missing)}"
        return None

    def __init_subclass__(cls) -> None:
        """Exclude forward passes from compilation, because they read and write the table."""
        super().__init_subclass__()
        if "forward" in cls.__dict__:
            # torch.optim does the same. torch.compiler.disable would import the compiler now.
            cls.forward = torch._disable_dynamo(cls.__dict__["forward"])  # type: ignore[attr-defined]

    @property
    def _writes(self) -> bool:
        """Whether a batch is written to the table: not in eval mode, nor without gradients."""
        return self.training and torch.is_grad_enabled()

    def _together(self) -> Ranks | None:
        """Return the ranks to exchange batches with, or None if there is nothing to exchange.

        Every forward pass calls this method first. So it also warns of passes that do not train.
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
        """Warn that the value is not a validation loss, unless a checkpoint repeats the pass."""
        if self.training and _in_reentrant_checkpoint():
            return
        warnings.warn(
            f"{type(self).__name__} was called in eval mode or without gradients. Its value "
            "contains the labels or values that it remembers of the training set: it is not a "
            f"validation loss. For another data set use {self._validate_with}.",
            stacklevel=user_stacklevel(),
        )

    def _exclude_from_ddp_broadcast(self, wrapper: DistributedDataParallel) -> None:
        """Keep DDP from broadcasting the table, if it wraps a module that contains this loss.

        Before every forward pass, DDP broadcasts all buffers that it was not told to ignore. The
        tables are equal on all ranks without this.
        """
        if self._ddp_id == id(wrapper):
            return
        for path, module in wrapper.module.named_modules():
            if module is self:
                names = [name for name, _ in self.named_buffers(prefix=path)]
                exclude_from_broadcast(wrapper, names)
        self._ddp_id = id(wrapper)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        """Move the module; the table stays at least float32, and all else keeps its precision."""
        buffers = [(part, name) for part in self.modules() for name in part._buffers]
        before = [part._buffers[name] for part, name in buffers]
        table = self.get_buffer(self._table)
        if table.is_meta and not fn(table).is_meta:
            raise NotImplementedError(
                f"{type(self).__name__} cannot leave the meta device, where its table and what it "
                "was built from are lost: build it on the device where it is used"
            )
        # The original buffers are converted once more below. Converting the moved ones instead
        # would keep what ``.half()`` has rounded.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for (part, name), tensor in zip(buffers, before, strict=True):
            moved = part._buffers[name]
            if tensor is not None and moved is not None and tensor.is_floating_point():
                widened = torch.promote_types(moved.dtype, self._least)
                dtype = widened if tensor is table else tensor.dtype
                part._buffers[name] = tensor.to(moved.device, dtype)
        return self


def _in_reentrant_checkpoint() -> bool:
    """Return whether this is the first pass of a reentrant checkpoint, which has no gradients.

    The second pass of the same batch, during the backward pass, has gradients and trains. Only the
    call stack distinguishes such a first pass from an evaluation.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            return True
    return False
