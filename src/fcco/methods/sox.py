"""SOX: moving averages for the inner values and for the gradient (label ``SOXE``)."""

from dataclasses import replace

from fcco.methods.method import Method
from fcco.methods.weights import Scalar, WeightRow, Weights

__all__ = ["MOMENTUM", "MOVING_AVERAGE", "SOAP", "SOX", "momentum", "moving_average"]


def moving_average(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """u_t = (1 - beta) u_{t-1} + beta g(w_t; xi), the estimator of ``SOXE`` (gamma = 0)."""
    return Weights(current=beta)


def momentum(alpha: Scalar) -> Weights:
    """z_t = (1 - alpha) z_{t-1} + alpha G(w_t), label ``momentum``."""
    return Weights(current=alpha)


MOVING_AVERAGE = WeightRow(moving_average)
MOMENTUM = WeightRow(momentum)

SOX = Method("sox", inner=MOVING_AVERAGE, gradient=MOMENTUM)
"""The baseline of the paper."""

SOAP = replace(SOX, name="soap")
"""SOX with alpha = 1."""
