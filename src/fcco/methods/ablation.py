"""The ablation of the paper's experiments: STORM on the whole vector u, unbiased by m/B1."""

from fcco.methods.method import Method
from fcco.methods.msvrm import ANCHORED_STORM, STORM
from fcco.methods.point import Point
from fcco.methods.sox import MOMENTUM
from fcco.methods.weights import Scalar, WeightRow, Weights

__all__ = ["VARIANT_V1", "VARIANT_V2", "VARIANT_V3", "anchored_whole_storm", "whole_storm"]


def whole_storm(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """u_t = (1 - beta) u_{t-1} + (m/B1) [beta g(w_t) + (1 - beta) (g(w_t) - g(w_{t-1}))]

    on probed rows; every other row shrinks by 1 - beta.
    """
    return Weights(current=ratio * beta, since_previous=ratio * (1 - beta))


def anchored_whole_storm(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """The same with g(w_t; xi) - g(w_s; xi) + g(w_s) in the place of beta's g(w_t; xi)."""
    return Weights(
        since_previous=ratio * (1 - beta), since_snapshot=ratio * beta, anchor=ratio * beta
    )


_WHOLE_STORM = WeightRow(whole_storm, (Point.PREVIOUS,))
_ANCHORED = WeightRow(anchored_whole_storm, (Point.PREVIOUS, Point.SNAPSHOT))

VARIANT_V1 = Method("variant-v1", inner=_WHOLE_STORM, gradient=MOMENTUM, shrinks=True)
"""Variant-v1: z by momentum."""

VARIANT_V2 = Method("variant-v2", inner=_WHOLE_STORM, gradient=STORM, shrinks=True)
"""Variant-v2: z by STORM."""

VARIANT_V3 = Method("variant-v3", inner=_ANCHORED, gradient=ANCHORED_STORM, shrinks=True)
"""Variant-v3: anchored at exact passes."""
