"""Checks on device values, gathered so that a step pays one device-to-host read for all."""

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
        return torch.stack(self._flagged()).any()

    def settle(self, number: Tensor | int = 0) -> int:
        """Read everything, and ``number`` with it, in one transfer; raise the first error."""
        read = self._flagged()
        if isinstance(number, Tensor):
            read.append(number)
        found = torch.stack(read).tolist() if read else []
        if isinstance(number, Tensor):
            number = found.pop()
        if any(found):
            for find in self._errors:
                if (error := find()) is not None:
                    raise error
        return int(number)

    def _flagged(self) -> list[Tensor]:
        flags = []
        if self._flags:
            flags.append(torch.cat(self._flags).any())
        if self._finite:
            # Chunks may differ in precision; cat promotes, and sums keep what is not finite. One
            # that overflows leads to a look.
            total = torch.cat(self._finite).sum()
            flags.append(total - total != 0)
        return flags
