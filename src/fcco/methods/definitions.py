"""Every method of the paper, and some of others: each is a row of weights for u and one for z.

    u_t = (1 - beta)  u_{t-1} + row of u applied to g        beta, gamma and m/B1 are its arguments
    z_t = (1 - alpha) z_{t-1} + row of z applied to G        alpha is its argument

A new method is one definition here, one row in ``fcco.methods.registry`` and one reference loop in
``tests/support/reference.py``.
"""

from dataclasses import replace
from functools import partial

from fcco.methods.method import Method, SlopeAt
from fcco.methods.weights import Point, Scalar, WeightRow, Weights

__all__ = [
    "ALEXR",
    "BSGD",
    "FRESH_PAIR_V1",
    "FRESH_PAIR_V2",
    "FRESH_PAIR_V3",
    "MARS",
    "MSVRM_V1",
    "MSVRM_V2",
    "MSVRM_V3",
    "SINGLE_POINT_V1",
    "SINGLE_POINT_V2",
    "SOAP",
    "SOX",
    "SVRG",
    "VARIANT_V1",
    "VARIANT_V2",
    "VARIANT_V3",
    "alexr",
    "mars",
]


# Rows of u ----------------------------------------------------------------------------------------


def moving_average(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """u_t = (1 - beta) u_{t-1} + beta g(w_t; xi), label ``SOXE``."""
    return Weights(current=beta)


def msvr(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """u_t = (1 - beta) u_{t-1} + beta g(w_t) + gamma (g(w_t) - g(w_{t-1})), label ``MSVR``."""
    return Weights(current=beta, since_previous=gamma)


def anchored_msvr(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """``MSVR`` with g(w_t; xi) - g(w_s; xi) + g(w_s) in the place of g(w_t; xi), ``MSVR_SVRG``."""
    return Weights(since_previous=gamma, since_snapshot=beta, anchor=beta)


def anchored_average(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """u_t = (1 - beta) u_{t-1} + beta [g(w_t; xi) - g(w_s; xi) + g(w_s)]; SVRG has beta = 1."""
    return Weights(since_snapshot=beta, anchor=beta)


def whole_storm(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """u_t = (1 - beta) u_{t-1} + (m/B1) [beta g(w_t) + (1 - beta) (g(w_t) - g(w_{t-1}))]

    on probed rows; every other row shrinks by 1 - beta. (The ablation of the paper's experiments.)
    """
    return Weights(current=ratio * beta, since_previous=ratio * (1 - beta))


def anchored_whole_storm(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """The same with g(w_t; xi) - g(w_s; xi) + g(w_s) in the place of beta's g(w_t; xi)."""
    return Weights(
        since_previous=ratio * (1 - beta), since_snapshot=ratio * beta, anchor=ratio * beta
    )


def extrapolated(theta: float, beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """u_t = (1 - beta) u_{t-1} + beta [g(w_t) + theta (g(w_t) - g(w_{t-1}))].

    It is the row of MSVR with gamma = beta theta.
    """
    return Weights(current=beta, since_previous=beta * theta)


# Rows of z ----------------------------------------------------------------------------------------


def momentum(alpha: Scalar) -> Weights:
    """z_t = (1 - alpha) z_{t-1} + alpha G(w_t), label ``momentum``."""
    return Weights(current=alpha)


def storm(alpha: Scalar) -> Weights:
    """z_t = (1 - alpha) z_{t-1} + G(w_t) - (1 - alpha) G(w_{t-1}), label ``eqn:z``."""
    return Weights(current=alpha, since_previous=1 - alpha)


def anchored_storm(alpha: Scalar) -> Weights:
    """z_t = (1 - alpha) (z_{t-1} + G(w_t) - G(w_{t-1})) + alpha h_t, label ``eqn:z+``,

    h_t = G(w_t) - G(w_s) + H_s with the exact H_s of the snapshot.
    """
    return Weights(since_previous=1 - alpha, since_snapshot=alpha, anchor=alpha)


def anchored_momentum(alpha: Scalar) -> Weights:
    """z_t = (1 - alpha) z_{t-1} + alpha [G(w_t) - G(w_s) + H_s]; SVRG has alpha = 1."""
    return Weights(since_snapshot=alpha, anchor=alpha)


def scaled_storm(scale: float, alpha: Scalar) -> Weights:
    """z_t = (1 - alpha) z_{t-1} + alpha G(w_t) + scale (1 - alpha) (G(w_t) - G(w_{t-1}))."""
    return Weights(current=alpha, since_previous=scale * (1 - alpha))


_MOVING_AVERAGE = WeightRow(moving_average)
_MSVR = WeightRow(msvr, (Point.PREVIOUS,), corrected=True)
_ANCHORED_MSVR = WeightRow(anchored_msvr, (Point.PREVIOUS, Point.SNAPSHOT), corrected=True)
_WHOLE_STORM = WeightRow(whole_storm, (Point.PREVIOUS,))
_ANCHORED_WHOLE_STORM = WeightRow(anchored_whole_storm, (Point.PREVIOUS, Point.SNAPSHOT))

_MOMENTUM = WeightRow(momentum)
_STORM = WeightRow(storm, (Point.PREVIOUS,))
_ANCHORED_STORM = WeightRow(anchored_storm, (Point.PREVIOUS, Point.SNAPSHOT))


# Methods ------------------------------------------------------------------------------------------

SOX = Method("sox", inner=_MOVING_AVERAGE, gradient=_MOMENTUM)
"""Moving averages for the inner values and for the gradient: the baseline of the paper."""

SOAP = replace(SOX, name="soap")
"""SOX with alpha = 1."""

BSGD = Method("bsgd", gradient=_MOMENTUM, slope_at=SlopeAt.VALUE)
"""Mini-batch descent with slopes at the fresh value g_i(w_t; xi): biased, without a table."""

MSVRM_V1 = Method("msvrm-v1", inner=_MSVR, gradient=_MOMENTUM)
"""MSVRM-v1 (Algorithm 1); with gamma = 0 it is SOX, with gamma = 1 - beta naive STORM."""

MSVRM_V2 = Method("msvrm-v2", inner=_MSVR, gradient=_STORM)
"""MSVRM-v2 (Algorithm 1); with f = id and one block it is STORM."""

MSVRM_V3 = Method("msvrm-v3", inner=_ANCHORED_MSVR, gradient=_ANCHORED_STORM)
"""MSVRM-v3 (Algorithm 2), for finite inner sums: both estimators are anchored at exact passes."""

# The single-point variants (label ``MSVR-SP``) have the same rows. What differs is the change they
# multiply: grad g_i(w_t; xi)^T (w_t - w_{t-1}) instead of g_i(w_t; xi) - g_i(w_{t-1}; xi).

SINGLE_POINT_V1 = Method("msvrm-v1-sp", inner=_MSVR, gradient=_MOMENTUM, single_point=True)
"""Single-point MSVRM-v1: one point per step, a value, a derivative and a gradient."""

SINGLE_POINT_V2 = Method("msvrm-v2-sp", inner=_MSVR, gradient=_STORM, single_point=True)
"""Single-point MSVRM-v2: u needs one point, z still needs two."""

SVRG = Method(
    "svrg",
    inner=WeightRow(anchored_average, (Point.SNAPSHOT,)),
    gradient=WeightRow(anchored_momentum, (Point.SNAPSHOT,)),
    slope_at=SlopeAt.UPDATED,
)
"""Two points and no memory: values and gradients are differences from the last exact pass.

    u_i = g_i(w_t; xi) - g_i(w_s; xi) + g_i(w_s),
    z_t = grad g(w_t; xi)^T grad f(u) - grad g(w_s; xi)^T grad f(g(w_s)) + grad F(w_s)

It is version 3 without the previous point, with slopes at the new u.
"""

VARIANT_V1 = Method("variant-v1", inner=_WHOLE_STORM, gradient=_MOMENTUM, shrinks=True)
"""The paper's ablation, STORM on the whole vector u unbiased by m/B1; z by momentum."""

VARIANT_V2 = Method("variant-v2", inner=_WHOLE_STORM, gradient=_STORM, shrinks=True)
"""The ablation with z by STORM."""

VARIANT_V3 = Method(
    "variant-v3", inner=_ANCHORED_WHOLE_STORM, gradient=_ANCHORED_STORM, shrinks=True
)
"""The ablation anchored at exact passes."""

# The fresh pair: for affine slopes, value and Jacobian come from two independent samples, and there
# is no table. It replaces the linear branches of the paper's theorems, which as printed read a
# stale sample.

FRESH_PAIR_V1 = Method("fresh-pair-v1", gradient=_MOMENTUM, slope_at=SlopeAt.PAIR)
"""The fresh pair with momentum for z."""

FRESH_PAIR_V2 = Method("fresh-pair-v2", gradient=_STORM, slope_at=SlopeAt.PAIR)
"""The fresh pair with STORM for z."""

FRESH_PAIR_V3 = Method("fresh-pair-v3", gradient=_ANCHORED_STORM, slope_at=SlopeAt.PAIR)
"""The fresh pair with anchored STORM for z."""


def alexr(theta: float) -> Method:
    """ALEXR with the extrapolation theta in [0, 1]; as published, slopes are taken at u_t."""
    inner = WeightRow(partial(extrapolated, theta), (Point.PREVIOUS,))
    return Method("alexr", inner=inner, gradient=_MOMENTUM, slope_at=SlopeAt.UPDATED)


ALEXR = alexr(theta=1.0)
"""ALEXR with full extrapolation."""


def mars(scale: float) -> Method:
    """SOX with a share ``scale`` of STORM's correction of z: 0 is SOX, 1 is STORM."""
    gradient = WeightRow(partial(scaled_storm, scale), (Point.PREVIOUS,))
    return Method("mars", inner=_MOVING_AVERAGE, gradient=gradient)


MARS = mars(scale=0.025)
"""With the scale that MARS uses on large networks."""
