"""Gradient accumulation: a hook that ends a window of several forward passes."""

from typing import Any, Protocol
from weakref import WeakSet

from torch.optim.optimizer import register_optimizer_step_post_hook

__all__ = ["close_at_optimizer_step"]


class _HasWindow(Protocol):
    def close_window(self) -> None: ...


_OPEN: WeakSet[Any] = WeakSet()
"""Losses that wait for the next step of a torch optimizer."""

_registered: list[Any] = []
"""The handle of the hook, once it is registered."""


def close_at_optimizer_step(criterion: _HasWindow) -> None:
    """Call ``criterion.close_window`` after the next step of any torch optimizer.

    A trainer accumulates gradients and then calls ``step``. So the number of micro-batches need not
    be known, and the last window of an epoch may be shorter.
    """
    if not _registered:
        _registered.append(register_optimizer_step_post_hook(_close_all))
    _OPEN.add(criterion)


def _close_all(optimizer: Any, args: Any, kwargs: Any) -> None:
    while _OPEN:
        _OPEN.pop().close_window()
