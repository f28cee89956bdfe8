"""Storage for the rows of a table: on a device, or in a memory-mapped file."""

import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

__all__ = ["Place", "Zeros", "zeros_at", "zeros_in_memory"]

Place = torch.device | str | Path | None
"""A device, or a directory for a memory-mapped file. A string is read as a device if it names one.
None stands for the device of the parameters."""

Zeros = Callable[[tuple[int, ...], torch.dtype], Tensor]
"""A function that makes a zero tensor of a given shape and dtype."""


def zeros_at(place: Place, default: torch.device) -> Zeros:
    """Return a function that makes the tensors of a table at ``place``.

    In a directory, the tensors are unnamed files that are mapped into memory. The system keeps in
    RAM what is in use, and the files vanish with the process. They do not replace a checkpoint.

    Args:
        place: a device, a directory or None, see ``Place``.
        default: the device of the parameters.

    Examples:
        >>> zeros = zeros_at(Path(tempfile.gettempdir()), torch.device("cpu"))
        >>> zeros((3, 1), torch.float32).tolist()
        [[0.0], [0.0], [0.0]]
    """
    try:
        device = default if place is None else torch.device(place)  # type: ignore[arg-type]
    except (RuntimeError, TypeError):  # not the name of a device
        directory = Path(place) if isinstance(place, str | Path) else None
        if directory is None or not directory.is_dir():
            raise ValueError(
                f"table_on must be a device or a directory, and {str(place)!r} is neither"
            ) from None
        return lambda shape, dtype: _mapped(directory, shape, dtype)
    return lambda shape, dtype: torch.zeros(shape, dtype=dtype, device=device)


def zeros_in_memory(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Make a zero tensor on the CPU.

    Examples:
        >>> zeros_in_memory((2,), torch.bool)
        tensor([False, False])
    """
    return torch.zeros(shape, dtype=dtype)


def _mapped(directory: Path, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    count = math.prod(shape)
    if count == 0:
        return torch.zeros(shape, dtype=dtype)
    with tempfile.NamedTemporaryFile(dir=directory, prefix="fcco-table-") as file:
        try:
            file.truncate(count * dtype.itemsize)
            if hasattr(os, "posix_fallocate"):
                # Reserve the space now: if the disk is full later, writing to a mapped file
                # kills the process.
                os.posix_fallocate(file.fileno(), 0, count * dtype.itemsize)
        except OSError as error:
            raise ValueError(
                f"table_on: no room for {count * dtype.itemsize} bytes in {directory}: "
                f"{error.strerror}"
            ) from None
        return torch.from_file(file.name, shared=True, size=count, dtype=dtype).view(shape)
