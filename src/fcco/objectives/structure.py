"""Tensors that an objective derives from labels, copied to the device of the scores."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

__all__ = ["Column", "Structure"]


class Structure:
    """Named tensors on the CPU, with copies of them on every device that asked for them.

    Examples:
        >>> structure = Structure(order=torch.tensor([1, 0]))
        >>> structure.on(torch.device("cpu")).order
        tensor([1, 0])
    """

    def __init__(self, **tensors: Tensor | None) -> None:
        self._host = SimpleNamespace(**tensors)
        self._copies: dict[torch.device, SimpleNamespace] = {}

    def on(self, device: torch.device) -> Any:
        """Return the tensors as attributes on ``device``; they are copied there only once."""
        if device.type == "cpu":
            return self._host
        if device not in self._copies:
            moved = {k: None if t is None else t.to(device) for k, t in vars(self._host).items()}
            self._copies[device] = SimpleNamespace(**moved)
        return self._copies[device]

    def __getstate__(self) -> dict[str, Any]:
        return {"_host": self._host, "_copies": {}}


class Column:
    """One number per block, converted once to the device and the precision of u.

    Examples:
        >>> Column(torch.tensor([1.0, 2.0]))(torch.tensor([1]), torch.zeros(1))
        tensor([2.])
    """

    def __init__(self, numbers: Tensor) -> None:
        self._exact = self._numbers = numbers

    def __call__(self, blocks: Tensor, like: Tensor) -> Tensor:
        """Return the numbers of ``blocks``, in the precision of ``like``."""
        # Convert from the exact numbers, so that float32 in between does not round float64.
        if self._numbers.device != blocks.device or self._numbers.dtype != like.dtype:
            self._numbers = self._exact.to(device=blocks.device, dtype=like.dtype)
        return self._numbers[blocks]

    def __getstate__(self) -> dict[str, Any]:
        return {"_exact": self._exact, "_numbers": self._exact}
