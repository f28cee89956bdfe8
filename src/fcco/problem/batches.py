"""What a data set hands to an objective: samples, and the part each of them plays."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor

__all__ = [
    "AnchorBatch",
    "Batch",
    "EmptyBatch",
    "GroupBatch",
    "LabelBatch",
    "NoBlocks",
    "PairBatch",
    "PointBatch",
    "RiskBatch",
    "TaskBatch",
    "ViewBatch",
    "each",
    "leaves",
]


def each(tree: Any, change: Callable[[Any], Any]) -> Any:
    """A tensor changed, or all tensors in nested tuples, lists and dicts.

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
    """The tensors in nested tuples, lists and dicts.

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
        inputs: samples along the first dimension, a tensor, or several in a tuple or a dict. As
            drawn these are positions in a data set, which its ``collate`` replaces by the samples
            themselves.
    """

    blocks: Tensor
    inputs: Any

    def __len__(self) -> int:
        """The number of blocks; 0 of an ``EmptyBatch``."""
        return len(self.blocks)

    def to(self, device: torch.device | str) -> Self:
        """The same batch on ``device``."""
        return self._each(lambda tensor: tensor.to(device))

    def with_weights(self, dtype: torch.dtype) -> Self:
        """The same batch, its ``weights`` and ``scale`` in ``dtype``."""
        names = [name for name in ("weights", "scale") if getattr(self, name, None) is not None]
        return replace(self, **{name: getattr(self, name).to(dtype) for name in names})

    def pin_memory(self) -> Self:
        """The same batch in pinned memory; a ``DataLoader`` asks for it."""
        return self._each(lambda tensor: tensor.pin_memory())

    def _each(self, change: Callable[[Any], Any]) -> Self:
        parts = {field.name: each(getattr(self, field.name), change) for field in fields(self)}
        return replace(self, **parts)


class NoBlocks(ValueError):
    """There is nothing to probe; an optimizer's step with such a batch changes nothing."""


class EmptyBatch(Batch):
    """Samples of which none belongs to a block: no positive, or no event, among them.

    It has no inputs, and an objective that asks for them is told so.

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

    def with_weights(self, dtype: torch.dtype) -> Self:
        """Itself."""
        return self

    def _each(self, change: Callable[[Any], Any]) -> Self:
        return self


@dataclass(frozen=True, eq=False)
class TaskBatch(Batch):
    """Each task's own samples: B1 * s inputs, s for each task in turn, its positives first.

    Args:
        positives: how many of the s samples of a task are positives.

    Examples:
        >>> TaskBatch(torch.tensor([2]), torch.zeros(4, 64), positives=2).inputs.shape
        torch.Size([4, 64])
    """

    positives: int


@dataclass(frozen=True, eq=False)
class LabelBatch(Batch):
    """Samples that all tasks share, as in a multi-label batch.

    Args:
        positive: (k, B1), 1 where sample j is a positive of the b-th block, else 0; numbers rather
            than booleans, which are several times slower to multiply with.
        negative: (k, B1); where neither is 1, the label is missing.
        scale: (2, B1), the weight of one positive and of one negative of each task, so that chunks
            of a data set average to the whole; None: means over the batch.

    Examples:
        >>> labels = torch.tensor([[True], [False]])
        >>> LabelBatch(torch.tensor([0]), torch.zeros(2, 3), labels, ~labels).scale is None
        True
    """

    positive: Tensor
    negative: Tensor
    scale: Tensor | None = None


@dataclass(frozen=True, eq=False)
class AnchorBatch(Batch):
    """Anchors, one per block, and the partners each is compared with.

    The inner value of block i is sum_j weights[i, j] phi(partner j, anchor i).

    Args:
        anchors: (B1,), positions of the anchors in ``inputs``.
        partners: positions of the partners, (k,) if all anchors share them, else (B1, k).
        weights: (B1, k) or (k,).
        samples: partners behind each value, an int or an int64 tensor (B1,).
        related: (B1, k) booleans, what the objective asks of a pair (same class, say).
        columns: (B1,), the column of the model's output that scores each block; None: there is
            one column.
        sure: how many of the last partners are not sampled but certain (the anchor itself).

    Examples:
        >>> batch = AnchorBatch(torch.tensor([7]), torch.rand(3, 5), anchors=torch.tensor([0]),
        ...                     partners=torch.tensor([1, 2]), weights=torch.full((2,), 0.5),
        ...                     samples=2)
        >>> batch.to("cpu").partners.tolist()
        [1, 2]
    """

    anchors: Tensor
    partners: Tensor
    weights: Tensor
    samples: int | Tensor
    related: Tensor | None = None
    columns: Tensor | None = None
    sure: int = 0


@dataclass(frozen=True, eq=False)
class GroupBatch(Batch):
    """Samples that belong to one block each: groups, bags, constraints.

    Args:
        owner: (k,), which of ``blocks`` each sample belongs to, as a position in ``blocks``.
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
    """Pairs of views: ``inputs`` is the first view of each, ``second`` the other.

    Args:
        second: the second views, in the same order.
        anchors: (B1,), which pair each block is about.
        backward: (B1,) booleans: whether the block looks from the second view to the first.
        partners: (k,), the pairs whose views are compared with.
        weights: (B1, k).
    """

    second: Any
    anchors: Tensor
    backward: Tensor
    partners: Tensor
    weights: Tensor


@dataclass(frozen=True, eq=False)
class PairBatch(Batch):
    """All anchors and partners of a data set, for ``Objective.inner_of_all``: pairs are not listed.

    Args:
        inputs: the outputs of the model for all N samples.
        anchors: (m,), positions in ``inputs``.
        partners: (n,), positions in ``inputs``.
        own: (m,), how often an anchor's pair with itself counts beyond the ``partners``: 1, 0, or
            -1 for an anchor among the partners whose pair is left out.
        labels: (N, tasks) booleans, whether a partner is ``related`` to the anchors of a task.
        columns: (m,), as for ``AnchorBatch``.
        classes: (N,): partners of its own class are ``related`` to an anchor.
    """

    anchors: Tensor
    partners: Tensor
    own: Tensor
    labels: Tensor | None = None
    columns: Tensor | None = None
    classes: Tensor | None = None


@dataclass(frozen=True, eq=False)
class RiskBatch(Batch):
    """Anchors and their risk sets, which are nested, for ``Objective.inner_of_all``.

    Args:
        inputs: the outputs of the model for all N samples.
        anchors: (m,), positions in ``inputs``.
        order: (n,), positions of the partners, the latest time first.
        ends: (m,): the partners of anchor i are ``order[:ends[i]]``.
        tied: (m,), equal numbers for anchors that share a time.
        shares: (m,), the part of the tied anchors that Efron's correction takes away.
    """

    anchors: Tensor
    order: Tensor
    ends: Tensor
    tied: Tensor
    shares: Tensor
