"""The exact optimum of a smooth convex function of few variables."""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["newton"]


def newton(value: Callable[[Tensor], Tensor], start: Tensor, *, steps: int = 100) -> Tensor:
    """Newton's method with backtracking, until the gradient is of the size of rounding errors.

    Examples:
        >>> newton(lambda w: (w - 3).pow(4).sum() + (w - 3).square().sum(), torch.zeros(1).double())
        tensor([3.], dtype=torch.float64)
    """
    w = start.detach().clone()
    for _ in range(steps):
        gradient = torch.func.grad(value)(w)
        hessian = torch.func.hessian(value)(w)
        direction = torch.linalg.solve(hessian, gradient)
        decrease = gradient @ direction
        if decrease < 1e-28:
            return w
        size, here = 1.0, value(w)
        while value(w - size * direction) > here - 1e-4 * size * decrease and size > 1e-12:
            size /= 2
        w = w - size * direction
    return w
