"""A data set whose blocks are tasks, each with its positives and negatives."""

import torch
from torch import Tensor

from fcco.batch import TaskBatch

__all__ = ["TaskData"]


class TaskData:
    """Samples and, for each of m tasks, which of them are positive.

    Args:
        inputs: N samples along the first dimension.
        labels: (N, m) booleans.

    Examples:
        >>> data = TaskData.from_classes(torch.zeros(4, 2), torch.tensor([0, 1, 2, 1]))
        >>> data.num_blocks, data.positives.tolist()
        (3, [1, 2, 1])
    """

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        if labels.dtype != torch.bool or labels.ndim != 2 or len(labels) != len(inputs):
            raise ValueError(
                f"labels must be booleans of shape ({len(inputs)}, m), got {labels.dtype} of "
                f"shape {tuple(labels.shape)}"
            )
        self.inputs = inputs
        self.labels = labels
        self.positives = labels.sum(0)
        self.negatives = len(inputs) - self.positives
        for name, counts in (("positive", self.positives), ("negative", self.negatives)):
            empty = (counts == 0).nonzero().flatten().tolist()
            if empty:
                raise ValueError(f"tasks {empty} have no {name} sample")
        # For each task its positives, then its negatives, as positions in inputs: (m, N).
        self._order = labels.T.sort(dim=1, descending=True, stable=True).indices

    @classmethod
    def from_classes(cls, inputs: Tensor, classes: Tensor) -> "TaskData":
        """One task a class, one against the rest."""
        labels = torch.nn.functional.one_hot(classes.long()).bool()
        return cls(inputs, labels)

    @property
    def num_blocks(self) -> int:
        """m, the number of tasks."""
        return self.labels.shape[1]

    def __len__(self) -> int:
        return len(self.inputs)

    def draw(self, blocks: Tensor, samples: int, generator: torch.Generator) -> TaskBatch:
        """For each task, half positives and half negatives, uniformly with replacement."""
        positives, device = samples // 2, self.inputs.device
        blocks = blocks.to(device)
        size = (len(blocks), samples)
        # float64, so that the floor is uniform for any count that fits in memory
        spread = torch.rand(size, generator=generator, dtype=torch.float64).to(device)
        first, second = self.positives[blocks, None], self.negatives[blocks, None]
        place = torch.cat(
            [
                (spread[:, :positives] * first).long(),
                first + (spread[:, positives:] * second).long(),
            ],
            dim=1,
        )
        rows = self._order[blocks[:, None], place].flatten()
        return TaskBatch(blocks, self.inputs[rows], positives)
