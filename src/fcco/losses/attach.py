"""A value whose gradient is given: what every loss that remembers returns."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

__all__ = ["Pending", "Taken", "attach", "refuse_forward_mode", "without_autograd"]


def attach(value: Tensor, inputs: Tensor, slopes: Tensor, keep: Any = None) -> Tensor:
    """``value``, with the gradient ``slopes`` with respect to ``inputs``.

    The slopes are constants, so a second derivative would be wrong: asking for it is an error, and
    so is forward-mode differentiation.

    Args:
        value: a scalar.
        inputs: a part of the graph.
        slopes: as ``inputs``.
        keep: something that lives as long as the graph.

    Examples:
        >>> x = torch.tensor([2.0], requires_grad=True)
        >>> attach(torch.tensor(7.0), x, torch.tensor([3.0])).backward()
        >>> x.grad
        tensor([3.])
    """
    attached: Tensor = _Attach.apply(inputs, value, slopes, keep)  # type: ignore[no-untyped-call]
    return attached


class _Attach(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, value: Tensor, slopes: Tensor, keep: Any) -> Tensor:
        ctx.save_for_backward(inputs)
        ctx.slopes, ctx.keep = slopes, keep
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (inputs,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # a graph of the gradient is wanted
            slope: Tensor = _Slope.apply(inputs, ctx.slopes, gradient)  # type: ignore[no-untyped-call]
            return slope, None, None, None
        return (ctx.slopes * gradient.to(ctx.slopes)).to(inputs.dtype), None, None, None


class _Slope(torch.autograd.Function):
    """The gradient, as a function of the inputs whose own gradient is an error."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, slopes: Tensor, gradient: Tensor) -> Tensor:
        return (slopes * gradient.to(slopes)).to(inputs.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        raise RuntimeError(
            "a loss that remembers cannot be differentiated twice: its slopes are constants of the "
            "graph (objective.exact of all scores has second derivatives)"
        )


def refuse_forward_mode(tensor: Any) -> None:
    """Raise if a tensor carries a tangent, which a loss would drop without a word."""
    if isinstance(tensor, Tensor) and unpack_dual(tensor).tangent is not None:
        raise RuntimeError(
            "a loss that remembers has no forward-mode derivative (objective.exact of all scores "
            "has one)"
        )


@dataclass(frozen=True, eq=False)
class Taken:
    """A step of a table: from what it was made, and what came out."""

    made_of: tuple[Tensor, ...]
    value: Tensor
    slopes: Tensor | None
    """Of the value; None: no gradient is wanted."""


class Pending(WeakSet[Taken]):
    """The steps whose graphs are alive, several of them under gradient accumulation.

    Activation checkpointing computes a forward pass again, during the backward pass, and a second
    step would move the table once more. The first pass either took place without gradients, and
    wrote nothing, or is alive with its graph. A copy begins with none.
    """

    def recomputed(self, *made_of: Tensor) -> Taken | None:
        """The step of the forward pass that a backward pass is computing again, if it is one."""
        if torch._C._current_graph_task_id() < 0:
            return None
        for taken in self:
            if all(a.equal(b) for a, b in zip(taken.made_of, made_of, strict=True)):
                return taken
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return Pending, ()


@contextmanager
def without_autograd(device: torch.device) -> Iterator[None]:
    """Work without gradients and autocast, unseen by an activation checkpoint around it."""
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    with torch.no_grad(), torch.autocast(device.type, enabled=False), hooks:
        yield
