"""ALEXR: a moving average of inner values extrapolated by how they changed."""

from functools import partial

from fcco.methods.method import Method, SlopeAt
from fcco.methods.point import Point
from fcco.methods.sox import MOMENTUM
from fcco.methods.weights import Scalar, WeightRow, Weights

__all__ = ["ALEXR", "alexr"]


def extrapolated(theta: float, beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """u_t = (1 - beta) u_{t-1} + beta [g(w_t) + theta (g(w_t) - g(w_{t-1}))].

    It is the row of MSVR with gamma = beta theta.
    """
    return Weights(current=beta, since_previous=beta * theta)


def alexr(theta: float) -> Method:
    """ALEXR with the extrapolation theta in [0, 1]; as it is published, slopes are taken at u_t."""
    inner = WeightRow(partial(extrapolated, theta), (Point.PREVIOUS,))
    return Method("alexr", inner=inner, gradient=MOMENTUM, slope_at=SlopeAt.UPDATED)


ALEXR = alexr(theta=1.0)
"""ALEXR with full extrapolation."""
