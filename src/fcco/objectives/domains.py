"""Projections onto the convex domains of inner values, and checks of arguments."""

import math
from numbers import Real

import torch
from torch import Tensor

__all__ = ["check_finite", "check_positive", "project_ratio"]


def project_ratio(u: Tensor, lowest: Tensor | float) -> Tensor:
    """Return the Euclidean projection of rows (a, b) onto 0 <= a <= b, lowest <= b.

    Examples:
        >>> project_ratio(torch.tensor([[3.0, 1.0], [-1.0, 0.0]]), 0.5)
        tensor([[2.0000, 2.0000],
                [0.0000, 0.5000]])
    """
    a, b = u.unbind(1)
    # A point above the line a = b goes to its foot on that line, if the foot is in the domain.
    # All other points are projected by clamping one coordinate after the other.
    middle = (a + b) / 2
    over = (a > b) & (middle >= lowest)
    a, b = torch.where(over, middle, a), torch.where(over, middle, b)
    b = b.clamp(min=lowest)
    return torch.stack([torch.minimum(a.clamp(min=0), b), b], dim=1)


def check_positive(**numbers: float) -> None:
    """Raise a ``ValueError`` that names the first number that is not positive.

    Examples:
        >>> check_positive(temperature=0.0)
        Traceback (most recent call last):
        ValueError: temperature must be positive and finite, got 0.0
    """
    for name, number in numbers.items():
        if not (isinstance(number, Real | Tensor) and 0 < number < math.inf):
            raise ValueError(f"{name} must be positive and finite, got {number!r}")
        whole = name.startswith(("num_", "max_")) or name in ("positives", "top_k")
        if whole and number != int(number):
            raise ValueError(f"{name} must be a whole number, got {number}")


def check_finite(**numbers: float) -> None:
    """Raise a ``ValueError`` that names the first number that is not finite.

    Examples:
        >>> check_finite(margin=math.nan)
        Traceback (most recent call last):
        ValueError: margin must be a finite number, got nan
    """
    for name, number in numbers.items():
        if not (isinstance(number, Real | Tensor) and -math.inf < number < math.inf):
            raise ValueError(f"{name} must be a finite number, got {number!r}")
