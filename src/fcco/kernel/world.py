"""What a forward pass changes besides its outputs: the RNG streams and module buffers."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["World"]

_WITHOUT_RNG = {torch.device("cpu"), torch.device("meta")}
"""Devices that have no RNG state of their own; that of the CPU is kept in any case."""


@dataclass(frozen=True)
class World:
    """A copy of RNG states and buffers, to go back to.

    Examples:
        >>> here = World.capture([], [])
        >>> first = torch.rand(3)
        >>> here.restore([])
        >>> bool((torch.rand(3) == first).all())
        True
    """

    rng: Tensor
    device_rng: tuple[tuple[torch.device, Tensor], ...]
    buffers: Sequence[Tensor]

    @classmethod
    def capture(cls, params: Sequence[Tensor], buffers: Sequence[Tensor]) -> "World":
        """Copy the CPU's RNG state, that of every device a parameter lies on, and the buffers."""
        devices = {p.device for p in params} - _WITHOUT_RNG
        return cls(
            torch.get_rng_state(),
            tuple((d, getattr(torch, d.type).get_rng_state(d)) for d in devices),
            torch._foreach_clone([buffer.detach() for buffer in buffers]) if buffers else [],
        )

    def restore(self, buffers: Sequence[Tensor]) -> None:
        """Put everything back, bit for bit."""
        torch.set_rng_state(self.rng)
        for device, state in self.device_rng:
            getattr(torch, device.type).set_rng_state(state, device)
        if self.buffers:
            with torch.no_grad():
                torch._foreach_copy_(list(buffers), list(self.buffers))
