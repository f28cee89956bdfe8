"""MSVRM-v3: both estimators anchored at periodic exact passes (Algorithm 2)."""

from fcco.methods.coefficients import Scalar, Weights
from fcco.methods.method import Method

__all__ = ["MSVRM_V3", "anchored_msvr", "anchored_storm"]


def anchored_msvr(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """``MSVR`` with g(w_t; xi) - g(w_s; xi) + g(w_s) in the place of g(w_t; xi), ``MSVR_SVRG``."""
    return Weights(since_previous=gamma, since_snapshot=beta, anchor=beta)


def anchored_storm(alpha: Scalar) -> Weights:
    """z_t = (1 - alpha) (z_{t-1} + G(w_t) - G(w_{t-1})) + alpha h_t, equation ``eqn:z+``,

    h_t = G(w_t) - G(w_s) + H_s with the exact H_s of the snapshot.
    """
    return Weights(since_previous=1 - alpha, since_snapshot=alpha, anchor=alpha)


MSVRM_V3 = Method("msvrm-v3", gradient=anchored_storm, inner=anchored_msvr)
"""MSVRM-v3, for finite inner sums."""
