"""Inputs of an objective: batches for steps, exact passes, and indices for losses."""

from fcco.data.digits import load_digits
from fcco.data.exact import exact_pass, exact_value
from fcco.data.inputs import Inputs
from fcco.data.loader import BlockLoader, block_loader
from fcco.data.sampler import BlockSampler
from fcco.data.with_index import WithIndex

__all__ = [
    "BlockLoader",
    "BlockSampler",
    "Inputs",
    "WithIndex",
    "block_loader",
    "exact_pass",
    "exact_value",
    "load_digits",
]
