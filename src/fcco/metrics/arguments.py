"""Checks of the arguments of metrics; every error names the argument."""

import torch
from torch import Tensor

__all__ = [
    "check_booleans",
    "check_finite",
    "check_integers",
    "check_numbers",
    "check_shape",
    "check_top",
]


def check_shape(name: str, tensor: Tensor, *sizes: int | str) -> None:
    """Each dimension has the given size, or any nonzero size where a letter is given.

    Examples:
        >>> check_shape("scores", torch.zeros(4), 4, "m")
        Traceback (most recent call last):
        ValueError: scores must have shape (4, m), got (4,)
    """
    fits = tensor.ndim == len(sizes) and all(
        found == size if isinstance(size, int) else found > 0
        for found, size in zip(tensor.shape, sizes, strict=True)
    )
    if not fits:
        wanted = ", ".join(map(str, sizes)) + ("," if len(sizes) == 1 else "")
        raise ValueError(f"{name} must have shape ({wanted}), got {tuple(tensor.shape)}")


def check_booleans(name: str, tensor: Tensor) -> None:
    """The tensor holds booleans: a 0/1 tensor could be scores or ids by mistake."""
    if tensor.dtype != torch.bool:
        raise ValueError(f"{name} must be booleans, got {tensor.dtype}")


def check_integers(name: str, tensor: Tensor) -> None:
    """The tensor holds ids: integers or booleans, not scores."""
    if tensor.is_floating_point() or tensor.is_complex():
        raise ValueError(f"{name} must be integers, got {tensor.dtype}")


def check_numbers(name: str, tensor: Tensor) -> None:
    """No entry is NaN; infinite entries have an order, which is enough for a ranking."""
    if tensor.isnan().any():
        raise ValueError(f"{name} holds {int(tensor.isnan().sum())} NaN")


def check_finite(name: str, tensor: Tensor) -> None:
    """No entry is NaN or infinite."""
    check_numbers(name, tensor)
    if tensor.isinf().any():
        raise ValueError(f"{name} holds {int(tensor.isinf().sum())} infinite values")


def check_top(k: int, most: int | None = None) -> None:
    """``k`` is at least 1 and at most the number of candidates."""
    if k < 1 or (most is not None and k > most):
        bounds = "at least 1" if most is None else f"between 1 and {most}"
        raise ValueError(f"k must be {bounds}, got {k}")
