"""Objectives that know which samples belong to which blocks, so that batches can be drawn."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from fcco.problem.batches import Batch, EmptyBatch, each
from fcco.problem.given import positions
from fcco.problem.objective import Objective

__all__ = ["SampledObjective"]


class SampledObjective(Objective):
    """An objective built from what is known of N samples; their inputs are kept elsewhere.

    ``fcco.data.block_loader``, ``exact_pass`` and ``exact_value`` ask it which samples they need.
    The batches that it forms hold positions 0..N-1 in the place of samples.
    """

    def __init_subclass__(cls, **given: Any) -> None:
        """Let a constructor that is called with other arguments say which it takes."""
        super().__init_subclass__(**given)
        if "__init__" in vars(cls):
            cls.__init__ = _checked(cls.__init__)  # type: ignore[method-assign]

    num_samples: int
    """N, the samples that the objective was built from."""
    num_views: int = 1
    """2 if inputs are a pair of views of every sample."""

    @abstractmethod
    def draw(self, blocks: Tensor, own: Tensor, shared: Tensor, *, replacement: bool) -> Batch:
        """Draw the inner samples of some blocks.

        Args:
            blocks: (b,), distinct.
            own: (b, samples_per_block) uniform numbers, for samples of single blocks.
            shared: (samples_per_block,) uniform numbers, for samples that blocks share.
            replacement: whether a sample may be drawn twice for a block.
        """

    @abstractmethod
    def spans(self, size: int) -> Sequence[Tensor]:
        """Divide an exact pass: the samples of each chunk, or its blocks if they have partners.

        ``size`` is the largest number per chunk.
        """

    @abstractmethod
    def chunk(self, span: Tensor) -> Batch:
        """Form one chunk; the chunks of all ``spans`` hold every sample of every block."""

    @abstractmethod
    def among(self, index: Tensor) -> Batch:
        """Form a batch of given samples, distinct, with the inputs in their order."""

    def check_draw(self, samples: int, *, replacement: bool) -> None:
        """Raise a ``ValueError`` naming the blocks that cannot give ``samples`` inner samples."""
        if samples < 1:
            raise ValueError(f"samples_per_block must be at least 1, got {samples}")

    def batch(self, inputs: Any, index: Any) -> Any:
        """Form a batch of samples from any loader, for ``inner``.

        The blocks are those of the samples, and the inner samples of a block are its own among
        them. If the samples are drawn uniformly, the inner values are unbiased. A sample that comes
        twice counts once. Blocks without an inner sample among them are left out; where none is
        left (no positive, say), the result is an ``EmptyBatch``, with which a step changes nothing.

        Args:
            inputs: the samples, as the model takes them (a pair of views for contrastive ones).
            index: (B,), their positions in the training set.

        Examples:
            >>> from fcco.objectives import Cox
            >>> objective = Cox(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([1, 1, 0]))
            >>> objective.batch(torch.rand(2, 5), [1, 2]).blocks
            tensor([1])
        """
        given = positions("index", index, self.num_samples)
        rows, place = given.unique(return_inverse=True)
        if len(rows) == len(given):
            rows = given
        else:  # the first of each
            first = torch.full_like(rows, len(given))
            first = first.scatter_reduce(0, place, torch.arange(len(given)), "amin")
            inputs = each(inputs, lambda part: part[first.to(part.device)])
        batch = self.among(rows)
        return batch.filled(inputs) if len(batch) else EmptyBatch()


def _checked(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor whose errors name its arguments: those of 0.2 took numbers, not labels."""

    @wraps(init)
    def call(self: Any, *given: Any, **named: Any) -> None:
        try:
            signature(init).bind(self, *given, **named)
        except TypeError as error:
            kind = type(self).__name__
            takes = str(signature(type(self))).partition(" -> ")[0]
            raise TypeError(
                f"{kind}: {error}. Since 0.3 objectives are built from what is known of the "
                f"samples: {kind}{takes}"
            ) from None
        init(self, *given, **named)

    return call
