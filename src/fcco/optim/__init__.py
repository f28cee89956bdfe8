"""The optimizers."""

from fcco.optim.choosers import BSGD, MSVRM, SOAP, SOX, FreshPair, Variant
from fcco.optim.compositional import CompositionalOptimizer

__all__ = ["BSGD", "MSVRM", "SOAP", "SOX", "CompositionalOptimizer", "FreshPair", "Variant"]
