"""Objectives whose blocks share partners drawn from all samples of the training set."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fcco.problem.batches import Batch
from fcco.problem.draws import draw
from fcco.problem.sampled import SampledObjective

__all__ = ["PooledObjective", "check_embeddings", "sum_over_anchors"]

_PAIRS = 1 << 22
"""Largest number of pairs in one chunk of an exact pass."""
_PRODUCTS = 1 << 19
"""Number of comparisons that an exact value of embeddings forms at a time."""


def sum_over_anchors(count: int, device: torch.device, value: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the sum of ``value(anchors)`` over chunks of anchors, each compared with all samples.

    The backward pass computes a chunk again, so that the N^2 comparisons are never all kept.

    Args:
        count: N, the number of samples.
        device: the device of the anchors.
        value: a function from a chunk of anchors to its part of the sum.

    Examples:
        >>> sum_over_anchors(4, torch.device("cpu"), lambda anchors: anchors.double().sum())
        tensor(6., dtype=torch.float64)
    """
    chunks = torch.arange(count, device=device).split(max(1, _PRODUCTS // count))
    if len(chunks) == 1:  # torch.func works without a checkpoint only
        return value(chunks[0])
    again = partial(checkpoint, value, use_reentrant=False, preserve_rng_state=False)
    return torch.stack([again(part) for part in chunks]).sum()


def check_embeddings(**embeddings: Tensor) -> None:
    """Raise a ``FloatingPointError`` that names the first samples whose norm is not finite.

    Examples:
        >>> check_embeddings(first=torch.tensor([[1.0], [torch.nan]]))
        Traceback (most recent call last):
        FloatingPointError: first of samples [1] is not finite, or its norm is not
    """
    for name, rows in embeddings.items():
        # A norm may overflow although every entry is finite, and normalizing would then give 0.
        lost = ~rows.detach().norm(dim=1).isfinite()
        if lost.any():
            samples = lost.nonzero().flatten()[:10].tolist()
            raise FloatingPointError(
                f"{name} of samples {samples} is not finite, or its norm is not"
            )


class PooledObjective(SampledObjective):
    """Base class of objectives whose inner values are means over all samples or all others."""

    @abstractmethod
    def _batch(self, blocks: Tensor, partners: Tensor) -> Batch:
        """Return a batch of blocks with common partners, which stand for all samples."""

    def check_draw(self, samples: int, *, replacement: bool) -> None:
        """Raise a ``ValueError`` if there are too few samples to draw."""
        super().check_draw(samples, replacement=replacement)
        if not replacement and samples > self.num_samples:
            raise ValueError(
                f"{samples} samples_per_block were requested without replacement, but there are "
                f"only {self.num_samples} samples"
            )

    def draw(
        self, blocks: Tensor, own: Tensor, shared: Tensor, *, replacement: bool = True
    ) -> Batch:
        """Draw partners that all blocks share: b + k samples give b * k pairs."""
        size = torch.tensor([self.num_samples])
        return self._batch(blocks, draw(shared[None], size, replacement=replacement)[0])

    def spans(self, size: int) -> Sequence[Tensor]:
        """Divide the blocks into chunks; each chunk passes all samples through the model."""
        # A chunk forms (its blocks) x (all samples) pairs at once, which bounds its size.
        fitting = max(1, min(size, _PAIRS // self.num_samples))
        return torch.split(torch.arange(self.num_blocks), fitting)

    def chunk(self, span: Tensor) -> Batch:
        """Return a batch of the given blocks with all samples."""
        return self._batch(span, torch.arange(self.num_samples))
