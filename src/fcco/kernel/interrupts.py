"""Protection of a step against Ctrl-C, and restoration of what a forward pass changes."""

import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["SavedState", "defer_interrupts"]

_WITHOUT_RNG = {"cpu", "meta"}
"""Devices without an RNG state of their own; that of the CPU is always saved."""


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Delay Ctrl-C until the end of the ``with`` block.

    Python calls signal handlers between any two of its instructions. A ``KeyboardInterrupt``
    between two statements that write state would leave a step half done. Only the main thread
    receives signals. Other signals, whose handlers may raise too, are not delayed.
    """
    handler = signal.getsignal(signal.SIGINT)
    # signal.signal may be called in the main thread only, which alone receives Ctrl-C. A handler
    # that is not callable (SIG_DFL, SIG_IGN) could not be called later.
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    received: list[Any] = []
    signal.signal(signal.SIGINT, lambda *arguments: received.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if received:
            # The original handler runs now, after everything was written.
            handler(*received[-1])


class SavedState:
    """A copy of the RNG states and buffers, which ``restore`` writes back.

    A forward pass does not only compute outputs. It also draws random numbers, and it writes to
    buffers, replaces them (``self.n = self.n + 1``) or makes them at its first call. The generators
    of ``random`` and numpy are not covered.

    Args:
        params: the parameters, whose devices have the RNG states to save.
        source: the buffers, or a module, for which replaced and new buffers are put back too.

    Examples:
        >>> saved = SavedState([], [])
        >>> first = torch.rand(3)
        >>> saved.restore()
        >>> bool((torch.rand(3) == first).all())
        True
    """

    def __init__(self, params: Iterable[Tensor], source: Sequence[Tensor] | nn.Module) -> None:
        self._rng = torch.get_rng_state()
        self._device_rng: dict[torch.device, Tensor] = {}
        for p in params:
            if p.device.type not in _WITHOUT_RNG and p.device not in self._device_rng:
                self._device_rng[p.device] = getattr(torch, p.device.type).get_rng_state(p.device)
        self._owners: list[tuple[nn.Module, dict[str, Tensor | None]]] = []
        buffers: list[Tensor | None] = []
        if isinstance(source, nn.Module):
            for module in source.modules():
                self._owners.append((module, dict(module._buffers)))
                buffers.extend(module._buffers.values())
        else:
            buffers.extend(source)
        self._buffers: dict[int, tuple[Tensor, Tensor]] = {}
        for buffer in buffers:
            if buffer is not None:
                self._buffers[id(buffer)] = buffer, buffer.detach().clone()

    @torch.no_grad()
    def restore(self) -> None:
        """Write everything back; calling it twice does no harm."""
        for device, state in self._device_rng.items():
            getattr(torch, device.type).set_rng_state(state, device)
        torch.set_rng_state(self._rng)
        # A forward pass may have replaced a buffer, or made one that did not exist: put the
        # original ones back before their values are restored.
        for module, before in self._owners:
            for name in module._buffers.keys() - before.keys():
                del module._buffers[name]
            module._buffers.update(before)
        for buffer, value in self._buffers.values():
            buffer.copy_(value)
