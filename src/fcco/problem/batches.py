"""Batches, which hold the samples of one forward pass and the role of each sample."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor

__all__ = [
    "Batch",
    "EmptyBatch",
    "GroupBatch",
    "NoBlocks",
    "PairBatch",
    "PointBatch",
    "ViewBatch",
    "each",
    "leaves",
]


def each(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Apply ``change`` to a tensor, or to all tensors in nested tuples, lists and dicts.

    It is applied to every object with a method ``to`` as a whole.

    Examples:
        >>> each({"x": torch.zeros(2), "n": 3}, lambda t: t + 1)
        {'x': tensor([1., 1.]), 'n': 3}
    """
    if hasattr(tree, "to"):
        return change(tree)
    if isinstance(tree, Mapping):
        return {key: each(part, change) for key, part in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(each(part, change) for part in tree))
    if isinstance(tree, tuple | list):
        return type(tree)(each(part, change) for part in tree)
    return tree


def leaves(tree: Any) -> Iterator[Tensor]:
    """Iterate over the tensors in nested tuples, lists and dicts.

    Examples:
        >>> [leaf.shape[0] for leaf in leaves((torch.zeros(2), {"x": torch.zeros(3)}))]
        [2, 3]
    """
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, Mapping | tuple | list):
        for part in tree.values() if isinstance(tree, Mapping) else tree:
            yield from leaves(part)


@dataclass(frozen=True, eq=False)
class Batch:
    """Base class of batches: some blocks, and the samples of one forward pass.

    Args:
        blocks: (B1,), the probed blocks.
        inputs: the samples along the first dimension, as a tensor, or as several tensors in a
            tuple or a dict. An objective first draws positions in the training set; ``filled``
            replaces them by the samples.
    """

    blocks: Tensor
    inputs: Any

    def __len__(self) -> int:
        """Return the number of blocks, which is 0 for an ``EmptyBatch``."""
        return len(self.blocks)

    def filled(self, inputs: Any) -> Self:
        """Return the batch with samples instead of positions, on the device of the samples.

        Weights are computed in float64. They are converted to the precision of the samples, but at
        least to float32.
        """
        batch, dtype = replace(self, inputs=inputs), torch.float32
        for part in leaves(inputs):
            if part.device != batch.blocks.device:
                batch = batch.to(part.device)
            if part.is_floating_point():
                dtype = torch.promote_types(dtype, part.dtype)
        weights = getattr(batch, "weights", None)
        return batch if weights is None else replace(batch, weights=weights.to(dtype))  # type: ignore[call-arg]

    def to(self, device: torch.device | str) -> Self:
        """Return the same batch on ``device``."""
        return self._each(lambda tensor: tensor.to(device))

    def pin_memory(self) -> Self:
        """Return the same batch in pinned memory; a ``DataLoader`` calls this."""
        return self._each(lambda tensor: tensor.pin_memory())

    def _each(self, change: Callable[[Any], Any]) -> Self:
        parts = {field.name: each(getattr(self, field.name), change) for field in fields(self)}
        return replace(self, **parts)


class NoBlocks(ValueError):
    """An error that says that a batch has no block; a step with such a batch changes nothing."""


class EmptyBatch(Batch):
    """A batch in which no sample belongs to a block, for example without any positive or event.

    It has no inputs. An objective that reads them gets a ``NoBlocks`` error.

    Examples:
        >>> batch = EmptyBatch().to("cpu")
        >>> len(batch), len(batch.blocks)
        (0, 0)
        >>> batch.inputs
        Traceback (most recent call last):
        fcco.problem.batches.NoBlocks: no sample of this batch belongs to a block ...
    """

    def __init__(self) -> None:
        object.__setattr__(self, "blocks", torch.zeros(0, dtype=torch.int64))

    def __getattr__(self, name: str) -> Any:
        # Copying and pickling probe for special methods, which must be missing and not raise.
        if name.startswith("__"):
            raise AttributeError(name)
        raise NoBlocks(
            "no sample of this batch belongs to a block (there is no positive or no event among "
            "them, or none to compare with): a step of an optimizer skips it on one rank, and so "
            "does filter(len, loader)"
        )

    def filled(self, inputs: Any) -> Self:
        """Return the batch itself."""
        return self

    def _each(self, change: Callable[[Any], Any]) -> Self:
        return self


@dataclass(frozen=True, eq=False)
class PairBatch(Batch):
    """Blocks and the partners that each of them is compared with.

    Component r of the inner value of block b is sum_k weights[r, b, k] phi(partner k, anchor b).

    Args:
        partners: the positions of the partners in ``inputs``, (k,) if all blocks share them and
            (B1, k) otherwise.
        weights: (R, B1, k), the weight of each partner in each of the R sums of a block.
        samples: the number of sampled partners of each block, an int or an int64 tensor (B1,).
        anchors: (B1,), the positions of the anchors in ``inputs``, or None without anchors.
        columns: (B1,), the column of the model's output that scores each block.
        fixed: the number of last partners that are not sampled but always present, such as the
            anchor itself.

    Examples:
        >>> batch = PairBatch(torch.tensor([7]), torch.rand(3, 5), partners=torch.tensor([1, 2]),
        ...                   weights=torch.full((1, 1, 2), 0.5), samples=2,
        ...                   anchors=torch.tensor([0]))
        >>> batch.to("cpu").partners.tolist()
        [1, 2]
    """

    partners: Tensor
    weights: Tensor
    samples: int | Tensor
    anchors: Tensor | None = None
    columns: Tensor | None = None
    fixed: int = 0


@dataclass(frozen=True, eq=False)
class GroupBatch(Batch):
    """Samples that belong to one block each, such as groups, bags or constraints.

    Args:
        owner: (k,), the block of each sample, as a position in ``blocks``.
        counts: (B1,), int64, the number of samples of each block, at least 1.
        targets: (k, ...), the target of each sample, or None.

    Examples:
        >>> GroupBatch(torch.tensor([4, 9]), torch.zeros(3, 2), owner=torch.tensor([0, 1, 1]),
        ...            counts=torch.tensor([1, 2])).counts.tolist()
        [1, 2]
    """

    owner: Tensor
    counts: Tensor
    targets: Tensor | None = None

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean of ``values`` over each block's samples, (k, ...) to (B1, ...).

        Sums are formed in at least float32, because a bfloat16 sum of ones stops at 256.
        """
        values = values.to(torch.promote_types(values.dtype, torch.float32))
        sums = values.new_zeros(len(self.blocks), *values.shape[1:])
        counts = self.counts.view(-1, *[1] * (values.ndim - 1)).to(values.dtype)
        return sums.index_add(0, self.owner, values) / counts

    def noise(self, values: Tensor, mean: Tensor) -> Tensor:
        """Return the standard error of ``mean``, the mean of ``values``; NaN for one sample."""
        # Squared differences keep a small spread precise, unlike E x^2 - (E x)^2. Divided by n - 1,
        # their mean is the squared standard error of the mean.
        squares = self.mean((values.detach() - mean.detach()[self.owner]).square())
        degrees = (self.counts - 1).view(-1, *[1] * (values.ndim - 1))
        return (squares / degrees).sqrt()


@dataclass(frozen=True, eq=False)
class PointBatch(Batch):
    """One input per block, and the number of latent samples to draw for it.

    Examples:
        >>> PointBatch(torch.tensor([3]), torch.zeros(1, 8), samples=5).samples
        5
    """

    samples: int


@dataclass(frozen=True, eq=False)
class ViewBatch(Batch):
    """Pairs of views, where ``inputs`` is a tuple of all first and all second views.

    Args:
        anchors: (B1,), the pair of each block, as a position in ``inputs``.
        backward: (B1,), whether a block compares a second view with first views.
        partners: (k,), the pairs that the anchors are compared with, as positions in ``inputs``.
        weights: (B1, k), the weight of each partner in the mean of a block.
    """

    anchors: Tensor
    backward: Tensor
    partners: Tensor
    weights: Tensor
