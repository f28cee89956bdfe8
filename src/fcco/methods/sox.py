"""SOX: moving averages for the inner values and for the gradient (equation ``SOXE``)."""

from fcco.methods.coefficients import Scalar, Weights
from fcco.methods.method import Method

__all__ = ["SOX", "momentum", "moving_average"]


def moving_average(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """u_t = (1 - beta) u_{t-1} + beta g(w_t; xi), the estimator of ``SOXE`` (gamma = 0)."""
    return Weights(current=beta)


def momentum(alpha: Scalar) -> Weights:
    """z_t = (1 - alpha) z_{t-1} + alpha G(w_t), equation ``momentum``."""
    return Weights(current=alpha)


SOX = Method("sox", gradient=momentum, inner=moving_average)
"""The baseline of the paper; with alpha = 1 it is SOAP."""
