"""The problem: m blocks, their inner values and the outer functions on top."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fcco.problem.probe import Probe

__all__ = ["Objective", "slope"]


class Objective(ABC):
    """F(w) = (1/m) sum_i f_i(g_i(w)), seen through samples of g_i; it knows no algorithm.

    A subclass sets ``num_blocks`` (m) and ``inner_dim`` (p), and defines ``outer`` and, for use
    with loaders, ``inner``:

    Examples:
        >>> import torch
        >>> class Variance(Objective):
        ...     "f_i(u) = u_2 - u_1^2 of the first two moments of a score."
        ...     num_blocks, inner_dim = 10, 2
        ...     def inner(self, model, batch):
        ...         blocks, x = batch
        ...         score = model(x).squeeze(-1)
        ...         values = torch.stack([score.mean(1), score.square().mean(1)], dim=1)
        ...         return Probe(blocks, values, samples=x.shape[1])
        ...     def outer(self, u, blocks):
        ...         return u[:, 1] - u[:, 0].square()
        >>> Variance().outer(torch.tensor([[1.0, 3.0]]), torch.tensor([0]))
        tensor([2.])
    """

    num_blocks: int
    """m, the number of blocks; their ids are 0 .. m-1."""
    inner_dim: int
    """p, the dimension of an inner value."""

    def inner(self, model: Any, batch: Any) -> Probe:
        """Sampled inner values of the blocks of ``batch``; what the closure of a step returns."""
        raise TypeError(
            f"{type(self).__name__} defines no inner(model, batch): define it, or build the Probe "
            "in the closure itself"
        )

    @abstractmethod
    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """f_i(u^i) for each row: (k, p) and (k,) to (k,). Row j depends only on row j of u."""

    def outer_slope(self, u: Tensor, blocks: Tensor) -> Tensor:
        """The gradient of f_i at each row, (k, p): by default ``outer`` is differentiated.

        Override it where a closed form saves time.
        """
        return slope(self.outer, u, blocks)

    def feasible(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Project each row onto a convex set that holds the range of g_i (default: no bound)."""
        return u


def slope(outer: Callable[..., Tensor], u: Tensor, *further: Tensor) -> Tensor:
    """The gradient of f_i at u^i, row by row: (k, p).

    Rows are independent by contract, so one reverse pass gives all of them.

    Args:
        outer: of an objective, (u, *further) to (k,).
        u: the rows, (k, p).
        further: what ``outer`` takes besides.

    Examples:
        >>> slope(lambda u: u.square().sum(1), torch.tensor([[3.0]]))
        tensor([[6.]])
    """
    with torch.enable_grad():
        rows = u.detach().requires_grad_()
        values = outer(rows, *further)
        if values.shape != u.shape[:1]:
            name = getattr(outer, "__qualname__", "outer")
            raise ValueError(
                f"{name} must return shape {tuple(u.shape[:1])}, got {tuple(values.shape)}"
            )
        if not values.requires_grad:  # f does not depend on u at all
            return torch.zeros_like(u)
        ones = torch.ones_like(values)
        (gradient,) = torch.autograd.grad(values, rows, ones, materialize_grads=True)
    return gradient
