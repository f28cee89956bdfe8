"""The scalars of a step, and the row of weights a method makes of them."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fcco.methods.point import Point

__all__ = ["Coefficients", "Gamma", "Scalar", "Weights", "gamma_age", "gamma_storm", "gamma_theory"]

Scalar = float | Tensor
"""A number, or a tensor that broadcasts over rows (gamma by age) or over runs (batched sweeps)."""

Gamma = float | str
"""The strength of the error correction: "theory", "storm", "age" or a number."""


@dataclass(frozen=True)
class Coefficients:
    """The coefficients of one step: lr (eta), alpha, beta and gamma.

    ``gamma`` is a name until the probed blocks are known, a number or a tensor afterwards.

    Examples:
        >>> Coefficients(lr=0.1, alpha=0.5, beta=0.25, gamma="storm").alpha
        0.5
    """

    lr: float
    alpha: float
    beta: float
    gamma: Scalar | str = 0.0


@dataclass(frozen=True)
class Weights:
    """One row of a method: what the observed quantity x enters its recursion with.

        current x(w_t) + since_previous [x(w_t) - x(w_{t-1})]
                       + since_snapshot [x(w_t) - x(w_snapshot)] + anchor X(w_snapshot)

    x is a noisy quantity (an inner value, a gradient), X its exact counterpart. Written with
    differences, a point that coincides with the current one simply drops out, and a correction
    with gamma near m/B1 does not cancel in floating point. ``at`` gives the plain coefficient of
    x at a point.

    Examples:
        >>> storm = Weights(current=0.25, since_previous=0.75)
        >>> storm.at(Point.CURRENT), storm.at(Point.PREVIOUS)
        (1.0, -0.75)
    """

    current: Scalar = 0.0
    since_previous: Scalar = 0.0
    since_snapshot: Scalar = 0.0
    anchor: Scalar = 0.0

    def since(self, point: Point) -> Scalar:
        """The weight of the change since ``point``."""
        return self.since_previous if point is Point.PREVIOUS else self.since_snapshot

    def at(self, point: Point) -> Scalar:
        """The plain coefficient of x at ``point``."""
        if point is Point.CURRENT:
            return self.current + self.since_previous + self.since_snapshot
        return -self.since(point)

    def points(self) -> set[Point]:
        """The points other than the current one that have a weight."""
        others = (Point.PREVIOUS, Point.SNAPSHOT)
        return {p for p in others if isinstance(self.since(p), Tensor) or self.since(p) != 0}

    def without(self, point: Point) -> "Weights":
        """The row when ``point`` coincides with the current one: its difference is zero."""
        if point is Point.PREVIOUS:
            return replace(self, since_previous=0.0)
        return replace(self, since_snapshot=0.0)

    def at_start(self) -> "Weights":
        """The row of the first step, where z_0 = z_1 is asked for: only what is known counts."""
        if isinstance(self.anchor, Tensor) or self.anchor != 0:
            return Weights(anchor=1.0)
        return Weights(current=1.0)


def gamma_theory(beta: float, num_blocks: int, blocks_per_step: int) -> float:
    """Gamma(beta) = (m - B1) / (B1 (1 - beta)) + (1 - beta), Lemma ``lem:main1``.

    With B1 = m the first term is absent, so beta = 1 is allowed there and only there.

    Examples:
        >>> gamma_theory(0.5, num_blocks=10, blocks_per_step=5)
        2.5
    """
    if blocks_per_step == num_blocks:
        return 1 - beta
    if beta >= 1:
        raise ValueError(
            f'gamma="theory" is singular at beta=1 when only {blocks_per_step} of {num_blocks} '
            "blocks are probed: lower beta, or set gamma=0"
        )
    return (num_blocks - blocks_per_step) / (blocks_per_step * (1 - beta)) + (1 - beta)


def gamma_storm(beta: float) -> float:
    """STORM's correction for one block, 1 - beta.

    Examples:
        >>> gamma_storm(0.25)
        0.75
    """
    return 1 - beta


def gamma_age(alpha: float, beta: float, age: Tensor) -> Tensor:
    """(1 - beta) (1 - (1 - alpha)^k) / alpha for a row last visited k steps ago.

    alpha -> 0 gives (1 - beta) k, the drift of a straight path over k steps; alpha = 1 gives
    STORM's 1 - beta. Computed in float64 through log1p and expm1, exact also for tiny alpha.

    Examples:
        >>> gamma_age(0.5, 0.0, torch.tensor([1, 2])).tolist()
        [1.0, 1.5]
    """
    decay = -math.inf if alpha >= 1 else math.log1p(-alpha)
    return torch.expm1(age.double() * decay).mul_((beta - 1) / alpha)
