"""Blocks that share partners drawn from all samples of the training set."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from fcco.problem.batches import Batch
from fcco.problem.draws import draw
from fcco.problem.sampled import SampledObjective

__all__ = ["PooledObjective"]

_PAIRS = 1 << 22
"""The largest number of pairs in a chunk of an exact pass."""


class PooledObjective(SampledObjective):
    """The inner value of a block is a mean over all samples, or over all others."""

    @abstractmethod
    def _batch(self, blocks: Tensor, partners: Tensor) -> Batch:
        """Some blocks with common partners, which stand for all samples."""

    def check_draw(self, samples: int, *, replacement: bool) -> None:
        """Without replacement, there are enough samples."""
        super().check_draw(samples, replacement=replacement)
        if not replacement and samples > self.num_samples:
            raise ValueError(
                f"{samples} samples_per_block were requested without replacement, but there are "
                f"only {self.num_samples} samples"
            )

    def draw(
        self, blocks: Tensor, own: Tensor, shared: Tensor, *, replacement: bool = True
    ) -> Batch:
        """The same partners for all blocks: b + k samples for b * k pairs."""
        size = torch.tensor([self.num_samples])
        return self._batch(blocks, draw(shared[None], size, replacement=replacement)[0])

    def spans(self, size: int) -> Sequence[Tensor]:
        """A few blocks at a time; every chunk passes all samples through the model."""
        fitting = max(1, min(size, _PAIRS // self.num_samples))
        return torch.split(torch.arange(self.num_blocks), fitting)

    def chunk(self, span: Tensor) -> Batch:
        """Some blocks with all samples."""
        return self._batch(span, torch.arange(self.num_samples))
