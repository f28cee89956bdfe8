"""What a forward pass changes besides its outputs: the RNG streams and module buffers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["World"]

_WITHOUT_RNG = {"cpu", "meta"}
"""Devices that have no RNG state of their own; that of the CPU is kept in any case."""


@dataclass(frozen=True)
class World:
    """A copy of RNG states and buffers, to go back to.

    Buffers are given as tensors, or as a module, whose buffers are then looked up by name whenever
    they are copied or put back: a forward pass may replace them (``self.n = self.n + 1``).

    Examples:
        >>> here = World.capture([], [])
        >>> first = torch.rand(3)
        >>> here.restore()
        >>> bool((torch.rand(3) == first).all())
        True
    """

    source: Sequence[Tensor] | nn.Module
    buffers: dict[str | int, Tensor]
    rng: Tensor
    device_rng: dict[torch.device, Tensor]

    @classmethod
    def capture(cls, params: Iterable[Tensor], source: Sequence[Tensor] | nn.Module) -> "World":
        """Copy the CPU's RNG state, that of every device a parameter lies on, and the buffers."""
        device_rng: dict[torch.device, Tensor] = {}
        for p in params:
            if p.device.type not in _WITHOUT_RNG and p.device not in device_rng:
                device_rng[p.device] = getattr(torch, p.device.type).get_rng_state(p.device)
        named = source.named_buffers() if isinstance(source, nn.Module) else enumerate(source)
        buffers = {}
        for name, buffer in named:
            buffers[name] = buffer.detach().clone()
        return cls(source, buffers, torch.get_rng_state(), device_rng)

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything back, bit for bit."""
        torch.set_rng_state(self.rng)
        for device, state in self.device_rng.items():
            getattr(torch, device.type).set_rng_state(state, device)
        source = self.source
        named = source.named_buffers() if isinstance(source, nn.Module) else enumerate(source)
        for name, buffer in named:
            buffer.copy_(self.buffers[name])
