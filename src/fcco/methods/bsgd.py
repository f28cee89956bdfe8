"""BSGD: plain mini-batch descent, the slope taken at the fresh value (biased, no table)."""

from fcco.methods.method import Method, SlopeAt
from fcco.methods.sox import momentum

__all__ = ["BSGD"]

BSGD = Method("bsgd", gradient=momentum, slope_at=SlopeAt.VALUE)
"""z_t = grad f_i(g_i(w_t; xi)) with alpha = 1; it is not SOX with beta = 1, whose slope is stale."""
