"""Batches: the samples of one forward pass, and the part that each of them plays."""

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
    """Change a tensor, or all tensors in nested tuples, lists and dicts.

    Objects that know how to move themselves (``to``) are changed as a whole.

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
    """Some blocks, and the samples of one forward pass.

    Args:
        blocks: (B1,), the probed blocks.
        inputs: samples along the first dimension: a tensor, or several in a tuple or a dict. An
            objective draws their positions in the training set; ``filled`` puts the samples there.
    """

    blocks: Tensor
    inputs: Any

    def __len__(self) -> int:
        """The number of blocks; 0 for an ``EmptyBatch``."""
        return len(self.blocks)

    def filled(self, inputs: Any) -> Self:
        """The same batch with samples instead of positions, on the device of the samples.

        Weights, which are drawn in float64, take the precision of the samples, but at least
        float32.
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
        """The same batch on ``device``."""
        return self._each(lambda tensor: tensor.to(device))

    def pin_memory(self) -> Self:
        """The same batch in pinned memory; a ``DataLoader`` calls this."""
        return self._each(lambda tensor: tensor.pin_memory())

    def _each(self, change: Callable[[Any], Any]) -> Self:
        parts = {field.name: each(getattr(self, field.name), change) for field in fields(self)}
        return replace(self, **parts)


class NoBlocks(ValueError):
    """There is nothing to probe; an optimizer's step with such a batch changes nothing."""


class EmptyBatch(Batch):
    """Samples of which none belongs to a block: no positive, or no event, among them.

    It has no inputs; an objective that asks for them gets a ``NoBlocks`` error.

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
        if name.startswith("__"):
            raise AttributeError(name)
        raise NoBlocks(
            "no sample of this batch belongs to a block (there is no positive or no event among "
            "them, or none to compare with): a step skips it, and so does filter(len, loader)"
        )

    def filled(self, inputs: Any) -> Self:
        """Itself."""
        return self

    def _each(self, change: Callable[[Any], Any]) -> Self:
        return self


@dataclass(frozen=True, eq=False)
class PairBatch(Batch):
    """Blocks and the partners that each of them is compared with.

    Component r of the inner value of block b is sum_k weights[r, b, k] phi(partner k, anchor b).

    Args:
        partners: positions of the partners in ``inputs``: (k,) if all blocks share them, else
            (B1, k).
        weights: (R, B1, k), how much each partner counts in each of the R sums of a block.
        samples: sampled partners behind each value, an int or an int64 tensor (B1,).
        anchors: (B1,), positions of the anchors in ``inputs``; None if blocks have no anchor.
        columns: (B1,), the column of the model's output that scores each block.
        fixed: how many of the last partners are not sampled but always there (the anchor itself).

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
    """Samples that belong to one block each: groups, bags, constraints.

    Args:
        owner: (k,), the block of each sample, as a position in ``blocks``.
        counts: (B1,), int64: the samples of each block; at least one.
        targets: what belongs to each sample (a label), or None.

    Examples:
        >>> GroupBatch(torch.tensor([4, 9]), torch.zeros(3, 2), owner=torch.tensor([0, 1, 1]),
        ...            counts=torch.tensor([1, 2])).counts.tolist()
        [1, 2]
    """

    owner: Tensor
    counts: Tensor
    targets: Tensor | None = None

    def mean(self, values: Tensor) -> Tensor:
        """The mean of ``values`` over each block's samples: (k, ...) to (B1, ...).

        In at least float32: sums in bfloat16 stop at 256.
        """
        values = values.to(torch.promote_types(values.dtype, torch.float32))
        sums = values.new_zeros(len(self.blocks), *values.shape[1:])
        counts = self.counts.view(-1, *[1] * (values.ndim - 1)).to(values.dtype)
        return sums.index_add(0, self.owner, values) / counts

    def noise(self, values: Tensor, mean: Tensor) -> Tensor:
        """The standard error of ``mean``, which is that of ``values``; NaN for one sample."""
        squares = self.mean((values.detach() - mean.detach()[self.owner]).square())
        degrees = (self.counts - 1).view(-1, *[1] * (values.ndim - 1))
        return (squares / degrees).sqrt()


@dataclass(frozen=True, eq=False)
class PointBatch(Batch):
    """One input per block, and how often an objective is to sample for it (latent variables).

    Examples:
        >>> PointBatch(torch.tensor([3]), torch.zeros(1, 8), samples=5).samples
        5
    """

    samples: int


@dataclass(frozen=True, eq=False)
class ViewBatch(Batch):
    """Pairs of views: ``inputs`` is a tuple of all first and all second views.

    Args:
        anchors: (B1,), which pair each block is about.
        backward: (B1,) booleans: whether the block compares a second view with the first ones.
        partners: (k,), the pairs whose views are compared with.
        weights: (B1, k).
    """

    anchors: Tensor
    backward: Tensor
    partners: Tensor
    weights: Tensor
