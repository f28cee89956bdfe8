"""What every data set with block structure offers: draws for a step, chunks for an exact pass."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor

from fcco.batch import Batch

__all__ = ["BlockData"]


B = TypeVar("B", bound=Batch)


class BlockData(ABC, Generic[B]):
    """Samples, and which of them belong to which of the m blocks.

    ``inputs`` is a tensor, or anything with ``len`` and ``[int]`` that gives a tensor (a torch
    ``Dataset`` that reads files, say).
    """

    inputs: Any
    num_blocks: int

    def __len__(self) -> int:
        return len(self.inputs)

    @abstractmethod
    def draw(self, blocks: Tensor, spread: Tensor, shared: Tensor, *, replacement: bool) -> B:
        """A batch of positions for ``blocks``: its inputs are positions in ``self.inputs``.

        Args:
            blocks: (b,), distinct.
            spread: (b, samples_per_block) uniform numbers, for samples of a block's own.
            shared: (samples_per_block,) uniform numbers, for samples that blocks share.
            replacement: whether a sample may be drawn twice for a block.
        """

    @abstractmethod
    def chunks(self, size: int) -> Iterator[B]:
        """Batches of positions that together hold every sample of every block.

        ``size`` bounds the samples (or blocks, where each has many partners) of a chunk.
        """

    def check(self, samples: int, *, replacement: bool) -> None:
        """Raise a ``ValueError`` naming the blocks that cannot give ``samples`` inner samples."""
        if samples < 1:
            raise ValueError(f"samples_per_block must be at least 1, got {samples}")

    def collate(self, batch: B) -> B:
        """The batch with its samples in the place of their positions."""
        inputs = self.take(self.inputs, batch.inputs)
        return replace(batch, inputs=inputs).to(inputs.device)

    @staticmethod
    def take(source: Any, positions: Tensor) -> Tensor:
        """The samples of ``source`` at ``positions``."""
        if isinstance(source, Tensor):
            return source[positions.to(source.device)]
        return torch.stack([source[i] for i in positions.tolist()])

    def through(self, model: Any, size: int) -> tuple[Self, Any]:
        """The same structure over the model's outputs, and a model that changes nothing.

        An exact pass over these forms every pair without calling the model again.
        """
        other = copy(self)
        other.inputs = self.outputs(model, self.inputs, size)
        return other, torch.nn.Identity()

    def outputs(self, model: Any, source: Any, size: int) -> Tensor:
        """What ``model`` gives for every sample of ``source``, ``size`` at a time."""
        rows = torch.arange(len(source)).split(size)
        return torch.cat([model(self.take(source, some)) for some in rows])
