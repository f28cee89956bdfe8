"""The methods, each two rows of weights; ``REGISTRY`` has them all by name."""

from fcco.methods.ablation import VARIANT_V1, VARIANT_V2, VARIANT_V3
from fcco.methods.alexr import ALEXR, alexr
from fcco.methods.bsgd import BSGD
from fcco.methods.coefficients import (
    Coefficients,
    Gamma,
    gamma_age,
    gamma_storm,
    gamma_theory,
)
from fcco.methods.fresh_pair import FRESH_PAIR_V1, FRESH_PAIR_V2, FRESH_PAIR_V3
from fcco.methods.gain import RULES, Beta, chosen_gain, cosine_gain, next_gain
from fcco.methods.mars import MARS, mars
from fcco.methods.method import Method, SlopeAt
from fcco.methods.msvrm import MSVRM_V1, MSVRM_V2, MSVRM_V3, SINGLE_POINT_V1, SINGLE_POINT_V2
from fcco.methods.point import Point
from fcco.methods.registry import REGISTRY, Entry, find, register
from fcco.methods.sox import SOAP, SOX
from fcco.methods.weights import Scalar, WeightRow, Weights

__all__ = [
    "ALEXR",
    "BSGD",
    "FRESH_PAIR_V1",
    "FRESH_PAIR_V2",
    "FRESH_PAIR_V3",
    "MARS",
    "MSVRM_V1",
    "MSVRM_V2",
    "MSVRM_V3",
    "REGISTRY",
    "RULES",
    "SINGLE_POINT_V1",
    "SINGLE_POINT_V2",
    "SOAP",
    "SOX",
    "VARIANT_V1",
    "VARIANT_V2",
    "VARIANT_V3",
    "Beta",
    "Coefficients",
    "Entry",
    "Gamma",
    "Method",
    "Point",
    "Scalar",
    "SlopeAt",
    "WeightRow",
    "Weights",
    "alexr",
    "chosen_gain",
    "cosine_gain",
    "find",
    "gamma_age",
    "gamma_storm",
    "gamma_theory",
    "mars",
    "next_gain",
    "register",
]
