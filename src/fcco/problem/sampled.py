"""Objectives that know the samples of their blocks, so that batches can be drawn."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from fcco.problem.batches import Batch, EmptyBatch, each, leaves
from fcco.problem.given import positions
from fcco.problem.objective import Objective

__all__ = ["SampledObjective"]


class SampledObjective(Objective):
    """Base class of objectives that are built from the labels of N samples.

    The inputs of the samples are stored elsewhere. ``fcco.data.block_loader``, ``exact_pass`` and
    ``exact_value`` ask the objective which samples they need. The batches that it forms hold
    positions 0..N-1 in place of samples.
    """

    def __init_subclass__(cls, **given: Any) -> None:
        """Wrap the constructor, so that an error about its arguments says what it takes."""
        super().__init_subclass__(**given)
        if "__init__" in vars(cls):
            cls.__init__ = _checked(cls.__init__)  # type: ignore[method-assign]

    num_samples: int
    """N, the number of samples that the objective was built from."""
    num_views: int = 1
    """Number of views of every sample; 2 if inputs are a pair."""

    @abstractmethod
    def draw(self, blocks: Tensor, own: Tensor, shared: Tensor, *, replacement: bool) -> Batch:
        """Draw the inner samples of some blocks.

        Args:
            blocks: (b,), the blocks, which are distinct.
            own: (b, samples_per_block), uniform numbers for samples of single blocks.
            shared: (samples_per_block,), uniform numbers for samples that all blocks share.
            replacement: whether a sample may be drawn twice for a block.
        """

    @abstractmethod
    def spans(self, size: int) -> Sequence[Tensor]:
        """Divide an exact pass into chunks of at most ``size`` samples.

        An entry lists the samples of a chunk, or its blocks if they have partners.
        """

    @abstractmethod
    def chunk(self, span: Tensor) -> Batch:
        """Form one chunk; the chunks of all ``spans`` contain every sample of every block."""

    @abstractmethod
    def among(self, index: Tensor) -> Batch:
        """Form a batch of the given distinct samples, with the inputs in their order."""

    def check_draw(self, samples: int, *, replacement: bool) -> None:
        """Raise a ``ValueError`` if ``samples`` inner samples cannot be drawn."""
        if samples < 1:
            raise ValueError(f"samples_per_block must be at least 1, got {samples}")

    def batch(self, inputs: Any, index: Any) -> Any:
        """Form a batch of samples from any loader, for ``inner``.

        The batch contains the blocks of the given samples, and the inner samples of a block are
        taken from the given samples too. If these are drawn uniformly, the inner values are
        unbiased. A sample that occurs twice counts once. Blocks without an inner sample are left
        out. If no block remains, for example without any positive, the result is an ``EmptyBatch``,
        with which a step changes nothing.

        Args:
            inputs: the inputs of the samples, as the model takes them (a pair of views for
                contrastive objectives).
            index: (B,), the positions of the samples in the training set.

        Examples:
            >>> from fcco.objectives import Cox
            >>> objective = Cox(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([1, 1, 0]))
            >>> objective.batch(torch.rand(2, 5), [1, 2]).blocks
            tensor([1])
        """
        given = positions("index", index, self.num_samples)
        for part in leaves(inputs):
            if part.shape[:1] != given.shape:
                raise ValueError(
                    f"inputs must be those of the {len(given)} samples of index, got a tensor of "
                    f"shape {tuple(part.shape)}"
                )
        rows, place = given.unique(return_inverse=True)
        if len(rows) == len(given):
            rows = given
        else:  # keep the first occurrence of each sample
            first = torch.full_like(rows, len(given))
            first = first.scatter_reduce(0, place, torch.arange(len(given)), "amin")
            inputs = each(inputs, lambda part: part[first.to(part.device)])
        batch = self.among(rows)
        return batch.filled(inputs) if len(batch) else EmptyBatch()


def _checked(init: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor whose errors name its arguments, because version 0.2 took others."""

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
