"""The objective: m blocks, their inner values, and the outer functions."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fcco.problem.probe import Probe

__all__ = ["Objective", "slope"]


class Objective(ABC):
    """Base class of objectives F(w) = (1/m) sum_i f_i(g_i(w)), where g_i is observed by samples.

    A subclass sets ``num_blocks`` (m) and ``inner_dim`` (p), and defines ``outer``. For use with
    loaders it also defines ``inner``.

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
    row_dtype: torch.dtype = torch.float32
    """The least precision of the rows of a table, for objectives that need more than float32."""

    def inner(self, model: Any, batch: Any) -> Probe:
        """Return sampled inner values of the blocks of ``batch``, as the closure of a step does."""
        raise TypeError(
            f"{type(self).__name__} defines no inner(model, batch): define it, or build the Probe "
            "in the closure itself"
        )

    @abstractmethod
    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Return f_i(u^i) for each row, (k,); entry j depends only on row j of u.

        Args:
            u: (k, p), the inner values.
            blocks: (k,), the block of each row.
        """

    def outer_slope(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Return the gradient of f_i at each row, (k, p).

        By default ``outer`` is differentiated. Override this method if a closed form is faster.
        """
        return slope(self.outer, u, blocks)

    def feasible(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Project each row onto a convex set that contains the range of g_i; by default no set."""
        return u

    def lock(self) -> None:
        """Refuse changes of settings from now on, because a table was built from them."""
        vars(self)["_locked"] = True

    def __setattr__(self, name: str, value: Any) -> None:
        # ``training`` belongs to nn.Module and changes with train() and eval(). Frameworks mark
        # modules with private attributes.
        setting = name in vars(self) and name != "training" and name[0] != "_"
        if vars(self).get("_locked") and setting:
            raise AttributeError(
                f"a table was built from this {type(self).__name__}: {name} cannot be changed, "
                "build another objective"
            )
        super().__setattr__(name, value)


def slope(outer: Callable[..., Tensor], u: Tensor, *further: Tensor) -> Tensor:
    """Return the gradient of f_i at u^i, row by row, (k, p).

    Row j of the values depends only on row j of u, so one reverse pass gives all gradients.

    Args:
        outer: the function ``outer`` of an objective, from (u, *further) to (k,).
        u: (k, p), the rows.
        further: the further arguments of ``outer``.

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
        if not values.requires_grad:  # f is constant in u
            return torch.zeros_like(u)
        ones = torch.ones_like(values)
        # A column of u that f ignores has no gradient; materialize_grads makes it 0.
        (gradient,) = torch.autograd.grad(values, rows, ones, materialize_grads=True)
    return gradient
