"""Data with block structure: who belongs to which block, and how steps and exact passes see it."""

from fcco.data.anchors import AnchorData
from fcco.data.blocks import BlockData
from fcco.data.digits import load_digits
from fcco.data.exact import exact_pass, exact_value
from fcco.data.groups import GroupData
from fcco.data.imbalance import binary, imbalanced
from fcco.data.lists import ListData
from fcco.data.loader import BlockLoader, block_loader
from fcco.data.named import Found, available, load_classes, load_ranking, load_survival
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
    "Found",
    "GroupData",
    "ListData",
    "PointData",
    "Ranked",
    "Survival",
    "TaskData",
    "ViewData",
    "WithIndex",
    "available",
    "binary",
    "block_loader",
    "exact_pass",
    "exact_value",
    "imbalanced",
    "load_classes",
    "load_digits",
    "load_ranking",
    "load_survival",
]
