"""Single-point MSVRM: the change of g since w_{t-1} by its derivative at w_t (``MSVR-SP``)."""

from fcco.methods.method import Method
from fcco.methods.msvrm_v1 import msvr
from fcco.methods.msvrm_v2 import storm
from fcco.methods.sox import momentum

__all__ = ["SINGLE_POINT_V1", "SINGLE_POINT_V2"]

# The row is that of MSVR: what differs is the change it multiplies, which is
# grad g_i(w_t; xi)^T (w_t - w_{t-1}) instead of g_i(w_t; xi) - g_i(w_{t-1}; xi).
SINGLE_POINT_V1 = Method("single-point-v1", gradient=momentum, inner=msvr, single_point=True)
"""Single-point MSVRM-v1: one point a step, a value, a derivative and a gradient."""

SINGLE_POINT_V2 = Method("single-point-v2", gradient=storm, inner=msvr, single_point=True)
"""Single-point MSVRM-v2: u needs one point, z still needs two."""
