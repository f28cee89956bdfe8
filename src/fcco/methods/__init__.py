"""The methods of the paper, each two rows of weights."""

from fcco.methods.bsgd import BSGD
from fcco.methods.fresh_pair import FRESH_PAIR_V1, FRESH_PAIR_V2, FRESH_PAIR_V3
from fcco.methods.method import Method, SlopeAt
from fcco.methods.msvrm_v1 import MSVRM_V1
from fcco.methods.msvrm_v2 import MSVRM_V2
from fcco.methods.msvrm_v3 import MSVRM_V3
from fcco.methods.single_point import SINGLE_POINT_V1, SINGLE_POINT_V2
from fcco.methods.sox import SOX
from fcco.methods.variant import VARIANT_V1, VARIANT_V2, VARIANT_V3

__all__ = [
    "BSGD",
    "FRESH_PAIR_V1",
    "FRESH_PAIR_V2",
    "FRESH_PAIR_V3",
    "MSVRM_V1",
    "MSVRM_V2",
    "MSVRM_V3",
    "SINGLE_POINT_V1",
    "SINGLE_POINT_V2",
    "SOX",
    "VARIANT_V1",
    "VARIANT_V2",
    "VARIANT_V3",
    "Method",
    "SlopeAt",
]
