"""Data with block structure: who belongs to which block, and how steps and exact passes see it."""

from fcco.data.digits import load_digits
from fcco.data.exact import exact_pass, exact_value
from fcco.data.loader import BlockLoader, block_loader
from fcco.data.tasks import TaskData

__all__ = ["BlockLoader", "TaskData", "block_loader", "exact_pass", "exact_value", "load_digits"]
