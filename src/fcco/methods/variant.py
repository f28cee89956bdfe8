"""The ablation of the paper: STORM on the whole vector u, unbiased by m/B1 (l.775)."""

from fcco.methods.coefficients import Scalar, Weights
from fcco.methods.method import Method
from fcco.methods.msvrm_v2 import storm
from fcco.methods.msvrm_v3 import anchored_storm
from fcco.methods.sox import momentum

__all__ = ["VARIANT_V1", "VARIANT_V2", "VARIANT_V3", "anchored_scaled_storm", "scaled_storm"]


def scaled_storm(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """u_t = (1 - beta) u_{t-1} + (m/B1) [beta g(w_t) + (1 - beta) (g(w_t) - g(w_{t-1}))]

    on probed rows; every other row shrinks by 1 - beta.
    """
    return Weights(current=ratio * beta, since_previous=ratio * (1 - beta))


def anchored_scaled_storm(beta: Scalar, gamma: Scalar, ratio: float) -> Weights:
    """The same with g(w_t; xi) - g(w_s; xi) + g(w_s) in the place of beta's g(w_t; xi)."""
    return Weights(
        since_previous=ratio * (1 - beta), since_snapshot=ratio * beta, anchor=ratio * beta
    )


VARIANT_V1 = Method("variant-v1", gradient=momentum, inner=scaled_storm, shrinks=True)
"""Variant-v1: z by momentum."""

VARIANT_V2 = Method("variant-v2", gradient=storm, inner=scaled_storm, shrinks=True)
"""Variant-v2: z by STORM."""

VARIANT_V3 = Method(
    "variant-v3", gradient=anchored_storm, inner=anchored_scaled_storm, shrinks=True
)
"""Variant-v3: anchored at exact passes."""
