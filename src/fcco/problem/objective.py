"""The problem: m blocks, their inner values and the outer functions on top."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor

from fcco.problem.probe import Probe

__all__ = ["Objective"]


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
        """f_i(u^i) for each row: (k, p) and (k,) to (k,). Row j depends on row j of u alone."""

    def outer_slope(self, u: Tensor, blocks: Tensor) -> Tensor | None:
        """The gradient of f_i at each row, (k, p), where it has a closed form that saves time.

        None, the default: fcco differentiates ``outer``.
        """
        return None

    def feasible(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Project each row onto a convex set that holds the range of g_i (default: no bound)."""
        return u
