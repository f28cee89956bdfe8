"""The optimizers."""

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
