"""The slope of the outer functions, the only thing a method asks of them."""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["slope"]


def slope(outer: Callable[[Tensor], Tensor], u: Tensor, *, name: str = "outer") -> Tensor:
    """The gradient of f_i at u^i, row by row: (k, p).

    Rows are independent by contract, so one reverse pass gives all of them.
    ``name`` is how an error calls ``outer``.

    Examples:
        >>> slope(lambda u: u.square().sum(1), torch.tensor([[3.0]]))
        tensor([[6.]])
    """
    with torch.enable_grad():
        rows = u.detach().requires_grad_()
        values = outer(rows)
        if values.shape != u.shape[:1]:
            raise ValueError(
                f"{name} must return shape {tuple(u.shape[:1])}, got {tuple(values.shape)}"
            )
        if not values.requires_grad:  # f does not depend on u at all
            return torch.zeros_like(u)
        ones = torch.ones_like(values)
        (gradient,) = torch.autograd.grad(values, rows, ones, materialize_grads=True)
    return gradient
