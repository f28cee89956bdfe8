"""The optimizers."""

from fcco.optim.choosers import BSGD, MSVRM, SOAP, SOX, FreshPair, Variant, by_name
from fcco.optim.optimizer import CompositionalOptimizer

__all__ = [
    "BSGD",
    "MSVRM",
    "SOAP",
    "SOX",
    "CompositionalOptimizer",
    "FreshPair",
    "Variant",
    "by_name",
]
