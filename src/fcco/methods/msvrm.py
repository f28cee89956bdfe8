"""MSVRM: the MSVR estimator for u, with momentum, STORM or anchored STORM for z (Algorithms 1, 2).

The single-point variants (label ``MSVR-SP``) have the same rows. What differs is the change they
multiply: grad g_i(w_t; xi)^T (w_t - w_{t-1}) instead of g_i(w_t; xi) - g_i(w_{t-1}; xi).
"""

from fcco.methods.method import Method
from fcco.methods.point import Point
from fcco.methods.sox import MOMENTUM
from fcco.methods.weights import Scalar, WeightRow, Weights

__all__ = [
    "ANCHORED_MSVR",
    "ANCHORED_STORM",
    "MSVR",
    "MSVRM_V1",
    "MSVRM_V2",
    "MSVRM_V3",
    "SINGLE_POINT_V1",
    "SINGLE_POINT_V2",
    "STORM",
    "anchored_msvr",
    "anchored_storm",
    "msvr",
    "storm",
]


def msvr(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """u_t = (1 - beta) u_{t-1} + beta g(w_t) + gamma (g(w_t) - g(w_{t-1})), label ``MSVR``."""
    return Weights(current=beta, since_previous=gamma)


def storm(alpha: Scalar) -> Weights:
    """z_t = (1 - alpha) z_{t-1} + G(w_t) - (1 - alpha) G(w_{t-1}), label ``eqn:z``."""
    return Weights(current=alpha, since_previous=1 - alpha)


def anchored_msvr(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """``MSVR`` with g(w_t; xi) - g(w_s; xi) + g(w_s) in the place of g(w_t; xi), ``MSVR_SVRG``."""
    return Weights(since_previous=gamma, since_snapshot=beta, anchor=beta)


def anchored_storm(alpha: Scalar) -> Weights:
    """z_t = (1 - alpha) (z_{t-1} + G(w_t) - G(w_{t-1})) + alpha h_t, label ``eqn:z+``,

    h_t = G(w_t) - G(w_s) + H_s with the exact H_s of the snapshot.
    """
    return Weights(since_previous=1 - alpha, since_snapshot=alpha, anchor=alpha)


MSVR = WeightRow(msvr, (Point.PREVIOUS,), corrected=True)
STORM = WeightRow(storm, (Point.PREVIOUS,))
ANCHORED_MSVR = WeightRow(anchored_msvr, (Point.PREVIOUS, Point.SNAPSHOT), corrected=True)
ANCHORED_STORM = WeightRow(anchored_storm, (Point.PREVIOUS, Point.SNAPSHOT))

MSVRM_V1 = Method("msvrm-v1", inner=MSVR, gradient=MOMENTUM)
"""MSVRM-v1; with gamma = 0 it is SOX, with gamma = 1 - beta naive STORM."""

MSVRM_V2 = Method("msvrm-v2", inner=MSVR, gradient=STORM)
"""MSVRM-v2; with f = id and one block it is STORM."""

MSVRM_V3 = Method("msvrm-v3", inner=ANCHORED_MSVR, gradient=ANCHORED_STORM)
"""MSVRM-v3, for finite inner sums: both estimators are anchored at periodic exact passes."""

SINGLE_POINT_V1 = Method("msvrm-v1-sp", inner=MSVR, gradient=MOMENTUM, single_point=True)
"""Single-point MSVRM-v1: one point per step, a value, a derivative and a gradient."""

SINGLE_POINT_V2 = Method("msvrm-v2-sp", inner=MSVR, gradient=STORM, single_point=True)
"""Single-point MSVRM-v2: u needs one point, z still needs two."""
