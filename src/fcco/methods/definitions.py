"""The methods of the paper and some others; each has a row of weights for u and a row for z.

    u_t = (1 - beta)  u_{t-1} + row of u applied to g        (a function of beta, gamma and m/B1)
    z_t = (1 - alpha) z_{t-1} + row of z applied to G        (a function of alpha)

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
    """Return the row of u_t = (1 - beta) u_{t-1} + beta g(w_t; xi), label ``SOXE``."""
    return Weights(current=beta)


def msvr(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """Return the row of ``MSVR``.

    u_t = (1 - beta) u_{t-1} + beta g(w_t) + gamma (g(w_t) - g(w_{t-1}))
    """
    return Weights(current=beta, since_previous=gamma)


def anchored_msvr(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """Return the row of ``MSVR_SVRG``.

    It is ``MSVR`` with g(w_t; xi) - g(w_s; xi) + g(w_s) in place of beta's g(w_t; xi).
    """
    return Weights(since_previous=gamma, since_snapshot=beta, anchor=beta)


def anchored_average(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """Return the row of a moving average of anchored values; SVRG has beta = 1.

    u_t = (1 - beta) u_{t-1} + beta [g(w_t; xi) - g(w_s; xi) + g(w_s)]
    """
    return Weights(since_snapshot=beta, anchor=beta)


def whole_storm(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """Return the row of the ablation in the paper's experiments, for the probed rows of u.

        u_t = (1 - beta) u_{t-1} + (m/B1) [beta g(w_t) + (1 - beta) (g(w_t) - g(w_{t-1}))]

    Every other row shrinks by 1 - beta.
    """
    return Weights(current=ratio * beta, since_previous=ratio * (1 - beta))


def anchored_whole_storm(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """Return the ablation's row with g(w_t; xi) - g(w_s; xi) + g(w_s) in place of g(w_t; xi)."""
    return Weights(
        since_previous=ratio * (1 - beta), since_snapshot=ratio * beta, anchor=ratio * beta
    )


def extrapolated(theta: float, beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """Return the row of ALEXR, which is that of MSVR with gamma = beta theta.

    u_t = (1 - beta) u_{t-1} + beta [g(w_t) + theta (g(w_t) - g(w_{t-1}))]
    """
    return Weights(current=beta, since_previous=beta * theta)


# Rows of z ----------------------------------------------------------------------------------------


def momentum(alpha: Scalar) -> Weights:
    """Return the row of z_t = (1 - alpha) z_{t-1} + alpha G(w_t), label ``momentum``."""
    return Weights(current=alpha)


def storm(alpha: Scalar) -> Weights:
    """Return the row of STORM, label ``eqn:z``.

    z_t = (1 - alpha) z_{t-1} + G(w_t) - (1 - alpha) G(w_{t-1})
    """
    return Weights(current=alpha, since_previous=1 - alpha)


def anchored_storm(alpha: Scalar) -> Weights:
    """Return the row of anchored STORM, label ``eqn:z+``.

        z_t = (1 - alpha) (z_{t-1} + G(w_t) - G(w_{t-1})) + alpha h_t

    Here h_t = G(w_t) - G(w_s) + H_s, with the exact H_s of the snapshot.
    """
    return Weights(since_previous=1 - alpha, since_snapshot=alpha, anchor=alpha)


def anchored_momentum(alpha: Scalar) -> Weights:
    """Return the row of anchored momentum; SVRG has alpha = 1.

    z_t = (1 - alpha) z_{t-1} + alpha [G(w_t) - G(w_s) + H_s]
    """
    return Weights(since_snapshot=alpha, anchor=alpha)


def scaled_storm(scale: float, alpha: Scalar) -> Weights:
    """Return the row of MARS, which takes a part of STORM's correction.

    z_t = (1 - alpha) z_{t-1} + alpha G(w_t) + scale (1 - alpha) (G(w_t) - G(w_{t-1}))
    """
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
"""SOX, the paper's baseline: moving averages for the inner values and for the gradient."""

SOAP = replace(SOX, name="soap")
"""SOAP, which is SOX with alpha = 1."""

BSGD = Method("bsgd", gradient=_MOMENTUM, slope_at=SlopeAt.VALUE)
"""BSGD: mini-batch descent with slopes at the fresh value g_i(w_t; xi), biased and table-free."""

MSVRM_V1 = Method("msvrm-v1", inner=_MSVR, gradient=_MOMENTUM)
"""MSVRM-v1 (Algorithm 1). With gamma = 0 it is SOX; with gamma = 1 - beta it is naive STORM."""

MSVRM_V2 = Method("msvrm-v2", inner=_MSVR, gradient=_STORM)
"""MSVRM-v2 (Algorithm 1). With f = id and one block it is STORM."""

MSVRM_V3 = Method("msvrm-v3", inner=_ANCHORED_MSVR, gradient=_ANCHORED_STORM)
"""MSVRM-v3 (Algorithm 2), for finite inner sums. Both estimators are anchored at exact passes."""

# The single-point variants (label ``MSVR-SP``) have the same rows. Only the change that gamma
# multiplies differs: grad g_i(w_t; xi)^T (w_t - w_{t-1}) replaces g_i(w_t; xi) - g_i(w_{t-1}; xi).

SINGLE_POINT_V1 = Method("msvrm-v1-sp", inner=_MSVR, gradient=_MOMENTUM, single_point=True)
"""Single-point MSVRM-v1. A step evaluates a value, a derivative and a gradient at one point."""

SINGLE_POINT_V2 = Method("msvrm-v2-sp", inner=_MSVR, gradient=_STORM, single_point=True)
"""Single-point MSVRM-v2. u needs one point, but z still needs two."""

SVRG = Method(
    "svrg",
    inner=WeightRow(anchored_average, (Point.SNAPSHOT,)),
    gradient=WeightRow(anchored_momentum, (Point.SNAPSHOT,)),
    slope_at=SlopeAt.UPDATED,
)
"""SVRG: values and gradients are differences from the last exact pass, without a memory.

    u_i = g_i(w_t; xi) - g_i(w_s; xi) + g_i(w_s),
    z_t = grad g(w_t; xi)^T grad f(u) - grad g(w_s; xi)^T grad f(g(w_s)) + grad F(w_s)

It is version 3 without the previous point, with slopes at the new u.
"""

VARIANT_V1 = Method("variant-v1", inner=_WHOLE_STORM, gradient=_MOMENTUM, shrinks=True)
"""The paper's ablation: STORM on the whole vector u, unbiased by the factor m/B1; z by momentum."""

VARIANT_V2 = Method("variant-v2", inner=_WHOLE_STORM, gradient=_STORM, shrinks=True)
"""The ablation with z by STORM."""

VARIANT_V3 = Method(
    "variant-v3", inner=_ANCHORED_WHOLE_STORM, gradient=_ANCHORED_STORM, shrinks=True
)
"""The ablation anchored at exact passes."""

# The fresh pair is for affine slopes. Value and Jacobian come from two independent samples, and
# there is no table. It replaces the linear branches of the paper's theorems, which as printed read
# a stale sample.

FRESH_PAIR_V1 = Method("fresh-pair-v1", gradient=_MOMENTUM, slope_at=SlopeAt.PAIR)
"""The fresh pair with momentum for z."""

FRESH_PAIR_V2 = Method("fresh-pair-v2", gradient=_STORM, slope_at=SlopeAt.PAIR)
"""The fresh pair with STORM for z."""

FRESH_PAIR_V3 = Method("fresh-pair-v3", gradient=_ANCHORED_STORM, slope_at=SlopeAt.PAIR)
"""The fresh pair with anchored STORM for z."""


def alexr(theta: float) -> Method:
    """Return ALEXR with the extrapolation theta in [0, 1]; its slopes are taken at u_t."""
    inner = WeightRow(partial(extrapolated, theta), (Point.PREVIOUS,))
    return Method("alexr", inner=inner, gradient=_MOMENTUM, slope_at=SlopeAt.UPDATED)


ALEXR = alexr(theta=1.0)
"""ALEXR with full extrapolation."""


def mars(scale: float) -> Method:
    """Return SOX with a part of STORM's correction of z; ``scale`` 0 is SOX and 1 is STORM."""
    gradient = WeightRow(partial(scaled_storm, scale), (Point.PREVIOUS,))
    return Method("mars", inner=_MOVING_AVERAGE, gradient=gradient)


MARS = mars(scale=0.025)
"""MARS with the scale that its authors use on large networks."""
