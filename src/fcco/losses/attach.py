"""Functions that give a value a known gradient, which all losses with a memory use."""

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
    """Return ``value`` as a tensor whose gradient with respect to ``inputs`` is ``slopes``.

    The slopes are constants, so a second derivative would be wrong. Computing one raises an error,
    and so does forward-mode differentiation.

    Args:
        value: a scalar.
        inputs: a tensor of the graph.
        slopes: the gradient, with the shape of ``inputs``.
        keep: an object that must live as long as the graph.

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
        if torch.is_grad_enabled():  # create_graph=True: make the second derivative an error
            slope: Tensor = _Slope.apply(inputs, ctx.slopes, gradient)  # type: ignore[no-untyped-call]
            return slope, None, None, None
        # The incoming gradient is a scalar, for example the factor of a GradScaler.
        return (ctx.slopes * gradient.to(ctx.slopes)).to(inputs.dtype), None, None, None


class _Slope(torch.autograd.Function):
    """The gradient as a function of the inputs; differentiating it raises an error."""

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
    """Raise an error if a tensor carries a tangent, which a loss would silently drop.

    The transforms of ``torch.func`` are refused too: they do not allow what hides saved tensors.
    """
    if isinstance(tensor, Tensor) and unpack_dual(tensor).tangent is not None:
        raise RuntimeError(
            "a loss that remembers has no forward-mode derivative (objective.exact of all scores "
            "has one)"
        )
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise RuntimeError(
            "a loss that remembers cannot be transformed by torch.func: call backward(), or "
            "transform objective.exact of all scores"
        )


@dataclass(frozen=True, eq=False)
class Taken:
    """A step of a table, with its inputs and its results."""

    made_of: tuple[Tensor, ...]
    value: Tensor
    slopes: Tensor | None
    """Slopes of the value, or None if no gradient is needed."""


class Pending(WeakSet[Taken]):
    """The steps whose graphs are alive; with gradient accumulation there are several.

    Activation checkpointing computes a forward pass again during the backward pass. A second step
    would then change the table twice. If the first pass took a step, that step lives as long as its
    graph, so the second pass finds it here. If the first pass had no gradients, it took no step,
    and the second one does. A copy of this set is empty.
    """

    def recomputed(self, *made_of: Tensor) -> Taken | None:
        """Return the step that a backward pass is computing again, or None."""
        # A negative id means that no backward pass is running.
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
    """Disable gradients and autocast, and hide saved tensors from activation checkpointing."""
    # Non-reentrant checkpointing counts saved tensors by hooks, and requires that both passes save
    # the same number. The step of a table runs only in the first pass, so its own hooks hide it.
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    with torch.no_grad(), torch.autocast(device.type, enabled=False), hooks:
        yield
