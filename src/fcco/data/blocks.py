"""The interface of data sets with blocks: draws for a step, chunks for an exact pass."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Generic, Self, TypeVar, cast

import torch
from torch import Tensor

from fcco.data.arguments import positions
from fcco.data.inputs import Inputs
from fcco.problem.batches import Batch, EmptyBatch, each, leaves

__all__ = ["BlockData"]


B = TypeVar("B", bound=Batch)
Device = torch.device | str | None

PAIRS = 1 << 22
"""The largest number of pairs in a chunk of an exact pass."""


class BlockData(ABC, Generic[B]):
    """Samples, and which of them belong to which of the m blocks.

    ``inputs`` is a tensor, an array, or any object with ``len`` and ``[int]`` that returns tensors,
    such as a torch ``Dataset`` that reads files; ``Inputs`` makes one of a data set that yields
    tuples or dicts. Labels and groups are kept on the CPU, where batches are drawn; a batch is
    moved to the device of the inputs.
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
            spread: (b, samples_per_block) uniform numbers, for samples of single blocks.
            shared: (samples_per_block,) uniform numbers, for samples that blocks share.
            replacement: whether a sample may be drawn twice for a block.
        """

    @abstractmethod
    def spans(self, size: int) -> Sequence[Tensor]:
        """The samples of each chunk of an exact pass, or its blocks if they have many partners.

        ``size`` is the largest number per chunk.
        """

    @abstractmethod
    def chunk(self, span: Tensor) -> B:
        """A batch of positions; the chunks of all ``spans`` contain every sample of every block."""

    def chunks(self, size: int) -> Iterator[B]:
        """The batches of positions of an exact pass, one at a time."""
        return map(self.chunk, self.spans(size))

    def check(self, samples: int, *, replacement: bool) -> None:
        """Raise a ``ValueError`` naming the blocks that cannot give ``samples`` inner samples."""
        if samples < 1:
            raise ValueError(f"samples_per_block must be at least 1, got {samples}")

    def among(self, rows: Tensor) -> B:
        """The batch of positions of the blocks that the samples ``rows``, distinct, belong to."""
        raise TypeError(f"{type(self).__name__} defines no among(rows), which batch(rows) needs")

    def batch(self, rows: Any) -> B:
        """A batch of given samples: any sampler, any loader, any batch size.

        The blocks are those of the samples, and the inner samples of a block are its own among
        them. If ``rows`` is drawn uniformly, the inner values are unbiased. A sample that comes
        twice counts once. Blocks without an inner sample among ``rows`` are left out; where none
        is left (no positive, say), it is an ``EmptyBatch``, with which a step changes nothing.

        Args:
            rows: positions of samples, a tensor or a list, as the ``collate_fn`` of a
                ``DataLoader(range(len(data)), collate_fn=data.batch)`` receives them.
        """
        batch = self.among(self._distinct(rows))
        return self.collate(batch) if len(batch) else cast(B, EmptyBatch())

    def _distinct(self, rows: Any) -> Tensor:
        places = positions("rows", rows, len(self))
        distinct = places.unique()
        return places if len(distinct) == len(places) else distinct

    def whole(self) -> Batch | None:
        """All blocks in one batch for ``Objective.inner_of_all``; None: only chunk by chunk."""
        return None

    def collate(self, batch: B) -> B:
        """The batch with samples instead of positions.

        Weights, which are drawn in float64, take the precision of the inputs, but at least float32.
        """
        inputs = self.take(self.inputs, batch.inputs)
        batch, kind = replace(batch, inputs=inputs), torch.float32
        for part in leaves(inputs):
            batch = batch.to(part.device) if part.device != batch.blocks.device else batch
            kind = torch.promote_types(kind, part.dtype) if part.is_floating_point() else kind
        return batch.with_weights(kind)

    @staticmethod
    def take(source: Any, positions: Tensor) -> Any:
        """The samples of ``source`` at ``positions``, in a tensor or as its ``collate_fn`` says."""
        if isinstance(source, Tensor):
            return source[positions.to(source.device)]
        if isinstance(source, Inputs):
            return source.collate_fn(source.__getitems__(positions.tolist()))
        samples = [source[i] for i in positions.tolist()]
        try:
            return torch.stack([torch.as_tensor(sample) for sample in samples])
        except (RuntimeError, TypeError, ValueError) as error:
            raise ValueError(
                f"samples must be tensors of one shape: {error} (fcco.data.Inputs takes the input "
                "out of a tuple or a dict, and has a collate_fn)"
            ) from error

    def through(self, model: Any, size: int, device: Device = None) -> tuple[Self, Any]:
        """The same structure with the model's outputs as inputs, and the identity as model.

        An exact pass over them forms every pair without calling the model again.
        """
        other = copy(self)
        other.inputs = self.outputs(model, self.inputs, size, device)
        return other, torch.nn.Identity()

    def outputs(self, model: Any, source: Any, size: int, device: Device) -> Tensor:
        """The outputs of ``model`` for all samples of ``source``, ``size`` at a time."""
        rows = torch.arange(len(source)).split(size)

        def call(some: Tensor) -> Tensor:
            outputs: Tensor = model(each(self.take(source, some), lambda part: part.to(device)))
            return outputs

        return torch.cat([call(some) for some in rows])
