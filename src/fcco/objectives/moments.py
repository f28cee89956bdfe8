"""Moments of sigmoid scores over masked columns, in few passes over the batch."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["class_moments"]


def class_moments(logits: Tensor, positive: Tensor, negative: Tensor, scale: Tensor) -> Tensor:
    """(E+ h, E- h, E+ h^2, E- h^2) of h = sigmoid(logits), column by column: (k, B1) to (B1, 4).

    Args:
        logits: (k, B1).
        positive: (k, B1), 1 for the samples of E+, else 0.
        negative: (k, B1), 1 for the samples of E-, else 0.
        scale: (2, B1), the weight of one positive and of one negative sample.

    With a hundred tasks a batch has as many scores as a small network has activations, and the
    time goes into passes over them, not into arithmetic. Plain autograd makes about twenty
    tensors of this size, this function makes five.

    Examples:
        >>> mask = torch.tensor([[1.0], [0.0]])
        >>> class_moments(torch.zeros(2, 1), mask, 1 - mask, torch.ones(2, 1))
        tensor([[0.5000, 0.5000, 0.2500, 0.2500]])
    """
    apply: Any = _ClassMoments.apply
    moments: Tensor = apply(logits, positive, negative, scale)
    return moments


class _ClassMoments(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, positive: Tensor, negative: Tensor, scale: Tensor
    ) -> Tensor:
        h = torch.sigmoid(logits)
        ctx.save_for_backward(h, positive, negative, scale)
        ctx.save_for_forward(h, positive, negative, scale)
        return _sums(h, h, positive, negative, scale)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        h, positive, negative, scale = ctx.saved_tensors
        a, b, a2, b2 = (gradient * torch.cat([scale, scale]).T).unbind(1)
        # d/dh = positive (a + 2 a2 h) + negative (b + 2 b2 h), then h' = h (1 - h); in place.
        total = (h * (2 * a2)).add_(a).mul_(positive)
        part = (h * (2 * b2)).add_(b).mul_(negative)
        total.add_(part)
        torch.mul(h, h, out=part)
        return total.mul_(torch.sub(h, part, out=part)), None, None, None

    @staticmethod
    @torch.no_grad()  # of the first order, like the backward pass
    def jvp(ctx: Any, tangent: Tensor, *others: None) -> Tensor:
        h, positive, negative, scale = ctx.saved_tensors
        slant = tangent * h * (1 - h)
        return _sums(slant, 2 * h, positive, negative, scale)


def _sums(x: Tensor, factor: Tensor, positive: Tensor, negative: Tensor, scale: Tensor) -> Tensor:
    """Sums of x and of factor * x over both masks, times the scale."""
    part = x * positive
    first = part.sum(0), part.mul_(factor).sum(0)
    torch.mul(x, negative, out=part)
    second = part.sum(0), part.mul_(factor).sum(0)
    return torch.stack([first[0], second[0], first[1], second[1]], 1) * torch.cat([scale, scale]).T
