"""Gradient accumulation: when a window of several forward passes ends."""

from typing import Any, Protocol
from weakref import WeakSet

from torch.optim.optimizer import register_optimizer_step_post_hook

__all__ = ["close_at_optimizer_step"]


class _HasWindow(Protocol):
    def close_window(self) -> None: ...


_OPEN: WeakSet[Any] = WeakSet()
"""The losses that wait for the next step of a torch optimizer."""

_registered: list[Any] = []
"""The hook, once there is one."""


def close_at_optimizer_step(criterion: _HasWindow) -> None:
    """Call ``criterion.close_window`` when a torch optimizer has made its next step.

    A trainer accumulates gradients and then steps: no count of micro-batches is needed, and the
    last window of an epoch may be shorter.
    """
    if not _registered:
        _registered.append(register_optimizer_step_post_hook(_close_all))
    _OPEN.add(criterion)


def _close_all(optimizer: Any, args: Any, kwargs: Any) -> None:
    while _OPEN:
        _OPEN.pop().close_window()
