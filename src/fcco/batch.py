"""What a loader hands to an objective whose blocks are tasks."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

__all__ = ["TaskBatch"]


@dataclass(frozen=True)
class TaskBatch:
    """Samples of a few tasks.

    Args:
        blocks: (B1,), the tasks.
        inputs: B1 * s rows, s for each task in turn, its positives first.
        positives: how many of the s samples of a task are positives.

    Examples:
        >>> TaskBatch(torch.tensor([2]), torch.zeros(4, 64), positives=2).inputs.shape
        torch.Size([4, 64])
    """

    blocks: Tensor
    inputs: Tensor
    positives: int

    def to(self, device: torch.device | str) -> "TaskBatch":
        """The same batch on ``device``."""
        return replace(self, blocks=self.blocks.to(device), inputs=self.inputs.to(device))
