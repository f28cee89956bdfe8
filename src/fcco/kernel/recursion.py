"""The one linear recursion behind every estimator of the paper."""

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor

from fcco.methods.point import Point
from fcco.methods.weights import Scalar, Weights

__all__ = ["advance"]

T = TypeVar("T", Tensor, list[Tensor])
"""One tensor (rows of u), or one for every parameter (z). Then weights are numbers, and ``current``
is the caller's to give away."""


def advance(
    state: T,
    keep: Scalar,
    weights: Weights,
    current: T,
    changes: Mapping[Point, T],
    anchor: T | None = None,
) -> T:
    """One step of an estimator: u of ``MSVR``, ``MSVR-SP``, ``MSVR_SVRG``; z of ``momentum``,
    ``eqn:z``, ``eqn:z+``.

        keep state + current x(w_t) + sum_points since[point] (x(w_t) - x(point)) + anchor X

    Args:
        state: the estimate of the step before, u_{t-1} or z_{t-1}.
        keep: 1 - beta for u, 1 - alpha for z.
        weights: the method's row.
        current: the observation at w_t; a list is overwritten.
        changes: x(w_t) - x(point) for each further point, or what stands for it (the directional
            derivative of the single-point variant).
        anchor: the exact quantity at the snapshot.

    Every argument may have leading batch dimensions.

    Examples:
        >>> u, g, old = torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([1.5])
        >>> row = Weights(current=0.5, since_previous=0.5)
        >>> advance(u, 0.5, row, g, {Point.PREVIOUS: g - old})
        tensor([1.7500])
        >>> advance([u], 0.5, row, [g], {Point.PREVIOUS: [g - old]})
        [tensor([1.7500])]
    """
    result: T
    if isinstance(current, list):  # in the memory of ``current``: fresh memory is slow to come by
        torch._foreach_mul_(current, float(weights.current))
        result = _plus(current, keep, state)
    else:
        result = _plus(keep * state, weights.current, current)
    for point, change in changes.items():
        result = _plus(result, weights.since(point), change)
    return result if anchor is None else _plus(result, weights.anchor, anchor)


def _plus(total: T, weight: Scalar, term: T) -> T:
    """total + weight term, in one operation; ``total`` is ours to overwrite."""
    if isinstance(total, list):
        torch._foreach_add_(total, term, alpha=float(weight))
        return total
    if isinstance(weight, Tensor):
        return torch.addcmul(total, weight, term)
    return torch.add(total, term, alpha=weight)
