"""BSGD: plain mini-batch descent, the slope taken at the fresh value (biased, no table)."""

from fcco.methods.method import Method, SlopeAt
from fcco.methods.sox import MOMENTUM

__all__ = ["BSGD"]

BSGD = Method("bsgd", gradient=MOMENTUM, slope_at=SlopeAt.VALUE)
"""z_t = G(w_t), slopes at g_i(w_t; xi), with alpha = 1; SOX with beta = 1 has stale slopes."""
