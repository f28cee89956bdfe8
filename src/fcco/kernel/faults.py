"""Checks on device values, gathered so that a step pays one device-to-host read for all."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["Faults"]


class Faults:
    """Collects flags, and tensors that must be finite; reads them once and raises the first fault.

    Examples:
        >>> faults = Faults()
        >>> bad = torch.tensor([False, True])
        >>> faults.add_rows(bad, lambda rows: ValueError(f"rows {rows.tolist()}"))
        >>> faults.settle()
        Traceback (most recent call last):
        ValueError: rows [1]
    """

    def __init__(self) -> None:
        self._flags: list[Tensor] = []
        self._finite: list[Tensor] = []
        self._errors: list[Callable[[], Exception | None]] = []

    def add_rows(self, bad: Tensor, error: Callable[[Tensor], Exception]) -> None:
        """Note a flag per row; ``error`` gets the indices of the bad rows."""
        self._flags.append(bad)
        self._errors.append(lambda: error(bad.nonzero().flatten()) if bad.any() else None)

    def add_finite(self, tensor: Tensor, error: Callable[[Tensor], Exception]) -> None:
        """Ask that ``tensor`` be finite; ``error`` gets the indices along its first dimension."""
        tensor = tensor.detach()

        def find() -> Exception | None:
            bad = ~tensor.isfinite().view(len(tensor) if tensor.ndim else 1, -1).all(1)
            return error(bad.nonzero().flatten()) if bad.any() else None

        self.add_screen(tensor, find)

    def add_screen(self, tensor: Tensor, find: Callable[[], Exception | None]) -> None:
        """If ``tensor`` is not finite, let ``find`` look closely; it may find nothing wrong."""
        self._finite.append(tensor.flatten())
        self._errors.append(find)

    def flag(self) -> Tensor:
        """Whether there is a fault (or something to look at), still on the device."""
        flags, total = self._gathered()
        return flags.any() | (total - total != 0)

    def settle(self, number: Tensor | int = 0) -> int:
        """Read everything, and ``number`` with it, in one transfer; raise the first error."""
        flags, total = self._gathered()
        if isinstance(number, Tensor):  # all as integers, which keeps the number exact
            read = torch.stack([flags.sum(), total - total != 0, number])
            flagged, odd, number = read.tolist()
        else:
            flagged, summed = torch.stack([flags.sum(), total]).tolist()
            odd = not math.isfinite(summed)
        if flagged or odd:
            for find in self._errors:
                if (error := find()) is not None:
                    raise error
        return int(number)

    def _gathered(self) -> tuple[Tensor, Tensor]:
        """All flags, and the sum of all that must be finite, which it then is unless it overflows.

        Chunks may differ in precision; cat promotes, and sums keep what is not finite.
        """
        device = (self._flags + self._finite)[0].device if self._errors else None
        none = torch.zeros(0, device=device)
        return (
            torch.cat(self._flags) if self._flags else none,
            (torch.cat(self._finite) if self._finite else none).sum(),
        )
