"""MSVRM-v1: the MSVR estimator for u, a moving average for z (Algorithm 1)."""

from fcco.methods.coefficients import Scalar, Weights
from fcco.methods.method import Method
from fcco.methods.sox import momentum

__all__ = ["MSVRM_V1", "msvr"]


def msvr(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """u_t = (1 - beta) u_{t-1} + beta g(w_t) + gamma (g(w_t) - g(w_{t-1})), equation ``MSVR``."""
    return Weights(current=beta, since_previous=gamma)


MSVRM_V1 = Method("msvrm-v1", gradient=momentum, inner=msvr)
"""MSVRM-v1; with gamma = 0 it is SOX, with gamma = 1 - beta naive STORM."""
