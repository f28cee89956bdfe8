"""The slope of the outer functions, the only thing a method asks of them."""

import torch
from torch import Tensor

from fcco.objective import Objective

__all__ = ["slope"]


def slope(objective: Objective, u: Tensor, blocks: Tensor) -> Tensor:
    """The gradient of f_i at u^i, row by row: (k, p).

    Rows are independent by contract, so one reverse pass through their sum gives all of them.

    Examples:
        >>> class Square(Objective):
        ...     num_blocks, inner_dim = 3, 1
        ...     def outer(self, u, blocks):
        ...         return u.square().sum(1)
        >>> slope(Square(), torch.tensor([[3.0]]), torch.tensor([0]))
        tensor([[6.]])
    """
    with torch.enable_grad():
        rows = u.detach().requires_grad_()
        values = objective.outer(rows, blocks)
        if values.shape != blocks.shape:
            raise ValueError(
                f"{type(objective).__name__}.outer must return shape {tuple(blocks.shape)}, "
                f"got {tuple(values.shape)}"
            )
        if not values.requires_grad:  # f does not depend on u at all
            return torch.zeros_like(u)
        (gradient,) = torch.autograd.grad(values.sum(), rows, materialize_grads=True)
    return gradient
