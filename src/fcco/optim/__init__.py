"""Optimizers for objectives of the form (1/m) sum_i f_i(g_i(w))."""

from fcco.optim.choosers import BSGD, MSVRM, SOAP, SOX, SVRG, FreshPair, Variant, by_name
from fcco.optim.optimizer import CompositionalOptimizer

__all__ = [
    "BSGD",
    "MSVRM",
    "SOAP",
    "SOX",
    "SVRG",
    "CompositionalOptimizer",
    "FreshPair",
    "Variant",
    "by_name",
]
