"""Where the rows of a table lie: beside the parameters, on another device, or in a file."""

import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

__all__ = ["Place", "Zeros", "zeros_at", "zeros_in_memory"]

Place = torch.device | str | Path | None
"""A device, or a directory for a memory-mapped file, as a string too (a device's name comes first);
None: with the parameters."""

Zeros = Callable[[tuple[int, ...], torch.dtype], Tensor]
"""Makes a zero tensor of a shape and dtype."""


def zeros_at(place: Place, default: torch.device) -> Zeros:
    """How to make the tensors of a table at ``place``.

    In a directory they are files without a name, mapped into memory: the system keeps in RAM what
    is in use, and they vanish with the process. They are working storage, not a checkpoint.

    Args:
        place: see ``Place``.
        default: where the parameters are.

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
    """Make a zero tensor on the host.

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
                # Reserved now: a mapped file that finds no room later kills the process.
                os.posix_fallocate(file.fileno(), 0, count * dtype.itemsize)
        except OSError as error:
            raise ValueError(
                f"table_on: no room for {count * dtype.itemsize} bytes in {directory}: "
                f"{error.strerror}"
            ) from None
        return torch.from_file(file.name, shared=True, size=count, dtype=dtype).view(shape)
