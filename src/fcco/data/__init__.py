"""Data with block structure: the blocks of samples, and batches for steps and exact passes."""

from fcco.data.anchors import AnchorData
from fcco.data.blocks import BlockData
from fcco.data.digits import load_digits
from fcco.data.exact import exact_pass, exact_value
from fcco.data.groups import GroupData
from fcco.data.imbalance import binary, imbalanced
from fcco.data.inputs import Inputs
from fcco.data.lists import ListData
from fcco.data.loader import BlockLoader, block_loader
from fcco.data.points import PointData
from fcco.data.records import Classified, Ranked, Survival
from fcco.data.sampler import BlockSampler
from fcco.data.tasks import TaskData
from fcco.data.views import ViewData
from fcco.data.with_index import WithIndex

__all__ = [
    "AnchorData",
    "BlockData",
    "BlockLoader",
    "BlockSampler",
    "Classified",
    "GroupData",
    "Inputs",
    "ListData",
    "PointData",
    "Ranked",
    "Survival",
    "TaskData",
    "ViewData",
    "WithIndex",
    "binary",
    "block_loader",
    "exact_pass",
    "exact_value",
    "imbalanced",
    "load_digits",
]
