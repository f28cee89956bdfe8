"""Writes to buffers that can be taken back."""

from types import EllipsisType

from torch import Tensor

__all__ = ["Journal"]


class Journal:
    """Remembers what each write replaced, so that a call leaves no trace if it must not.

    Examples:
        >>> import torch
        >>> table, journal = torch.zeros(3), Journal()
        >>> journal.write(table, torch.tensor([1]), torch.tensor([5.0]))
        >>> table
        tensor([0., 5., 0.])
        >>> journal.undo()
        >>> table
        tensor([0., 0., 0.])
    """

    def __init__(self) -> None:
        self._replaced: list[tuple[Tensor, Tensor | EllipsisType, Tensor]] = []

    def write(self, buffer: Tensor, places: Tensor | EllipsisType, values: Tensor) -> None:
        """``buffer[places] = values``; places are distinct."""
        self._replaced.append((buffer, places, buffer[places].clone()))
        buffer[places] = values

    def undo(self) -> None:
        """Put back what was there, the last write first."""
        while self._replaced:
            buffer, places, values = self._replaced.pop()
            buffer[places] = values
