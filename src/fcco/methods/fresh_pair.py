"""The fresh pair: for affine slopes, value and Jacobian from two independent samples, no table.

It replaces the linear branches of the paper's theorems, which as printed read a stale sample.
"""

from fcco.methods.method import Method, SlopeAt
from fcco.methods.msvrm import ANCHORED_STORM, STORM
from fcco.methods.sox import MOMENTUM

__all__ = ["FRESH_PAIR_V1", "FRESH_PAIR_V2", "FRESH_PAIR_V3"]

FRESH_PAIR_V1 = Method("fresh-pair-v1", gradient=MOMENTUM, slope_at=SlopeAt.PAIR)
"""The fresh pair with momentum for z."""

FRESH_PAIR_V2 = Method("fresh-pair-v2", gradient=STORM, slope_at=SlopeAt.PAIR)
"""The fresh pair with STORM for z."""

FRESH_PAIR_V3 = Method("fresh-pair-v3", gradient=ANCHORED_STORM, slope_at=SlopeAt.PAIR)
"""The fresh pair with anchored STORM for z."""
