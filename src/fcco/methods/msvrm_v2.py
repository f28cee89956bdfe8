"""MSVRM-v2: the MSVR estimator for u, STORM for z (Algorithm 1)."""

from fcco.methods.coefficients import Scalar, Weights
from fcco.methods.method import Method
from fcco.methods.msvrm_v1 import msvr

__all__ = ["MSVRM_V2", "storm"]


def storm(alpha: Scalar) -> Weights:
    """z_t = (1 - alpha) z_{t-1} + G(w_t) - (1 - alpha) G(w_{t-1}), equation ``eqn:z``."""
    return Weights(current=alpha, since_previous=1 - alpha)


MSVRM_V2 = Method("msvrm-v2", gradient=storm, inner=msvr)
"""MSVRM-v2; with f = id and one block it is STORM."""
