"""A value whose gradient is given: what every loss that remembers returns."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["apart", "attach"]


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
        ctx.slopes, ctx.dtype, ctx.keep = slopes, inputs.dtype, keep
        return value.clone()

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return (ctx.slopes * gradient.to(ctx.slopes)).to(ctx.dtype), None, None, None


@contextmanager
def apart(device: torch.device) -> Iterator[None]:
    """Work without gradients and autocast, unseen by an activation checkpoint around it."""
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    with torch.no_grad(), torch.autocast(device.type, enabled=False), hooks:
        yield
