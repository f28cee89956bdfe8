"""A data set whose blocks are tasks, each with its positives and negatives."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from fcco.data.arguments import absent, as_inputs, structure, tensor
from fcco.data.blocks import BlockData
from fcco.data.draws import draw
from fcco.problem.batches import EmptyBatch, LabelBatch, TaskBatch

__all__ = ["TaskData"]


class TaskData(BlockData[TaskBatch | LabelBatch]):
    """Samples and their labels for each of m tasks. Block i is task i.

    Args:
        inputs: N samples along the first dimension.
        labels: (N, m) booleans.
        known: (N, m) booleans, False for a missing label; by default all labels are known.
        drop_empty: leave out tasks without a positive or without a negative, instead of raising;
            ``tasks`` lists the columns that were kept.

    Examples:
        >>> data = TaskData.from_classes(torch.zeros(4, 2), torch.tensor([0, 1, 2, 1]))
        >>> data.num_blocks, data.positives.tolist()
        (3, [1, 2, 1])
    """

    def __init__(
        self,
        inputs: Any,
        labels: Tensor,
        known: Tensor | None = None,
        *,
        drop_empty: bool = False,
    ) -> None:
        inputs, labels = as_inputs(inputs), tensor("labels", labels).cpu()
        known = None if known is None else tensor("known", known).cpu()
        fits = labels.ndim == 2 and len(labels) == len(inputs) and labels.numel()
        if labels.dtype != torch.bool or not fits:
            raise ValueError(
                f"labels must be booleans of shape ({len(inputs)}, m), got {labels.dtype} of "
                f"shape {tuple(labels.shape)}"
            )
        if known is not None and (known.dtype != torch.bool or known.shape != labels.shape):
            raise ValueError(f"known must be booleans of shape {tuple(labels.shape)}")
        self.inputs = inputs
        positive = labels if known is None else labels & known
        negative = ~labels if known is None else ~labels & known
        empty = ~(positive.any(0) & negative.any(0))
        if drop_empty:
            positive, negative = positive[:, ~empty], negative[:, ~empty]
            if not positive.shape[1]:
                raise ValueError("labels: no task has both a positive and a negative sample")
        else:
            for name, members in (("positive", positive), ("negative", negative)):
                lacking = (~members.any(0)).nonzero().flatten().tolist()
                if lacking:
                    raise ValueError(
                        f"tasks {lacking} have no {name} sample (drop_empty=True leaves them out)"
                    )
        self.tasks = (~empty).nonzero().flatten()
        self.labels, self.positive, self.negative = positive, positive, negative
        self.positives, self.negatives = positive.sum(0), negative.sum(0)
        self.num_blocks = positive.shape[1]
        # For each task its positives, its negatives, then the unknown, as positions: (m, N).
        kind = torch.where(positive, 0, torch.where(negative, 1, 2)).to(torch.int8)
        self._order = kind.T.sort(dim=1, stable=True).indices

    @classmethod
    def from_classes(cls, inputs: Any, classes: Tensor, *, drop_empty: bool = False) -> "TaskData":
        """One task per class, one class against the rest."""
        inputs = as_inputs(inputs)
        whole = structure("classes", classes, len(inputs), kind="whole")
        names, places = whole.unique(return_inverse=True)
        count = int(names[-1]) + 1 if len(names) else 0
        if not drop_empty and (lacking := absent(names, count)):
            raise ValueError(
                f"tasks {lacking} have no positive sample (drop_empty=True leaves them out)"
            )
        labels = places[:, None] == torch.arange(len(names))
        data = cls(inputs, labels, drop_empty=drop_empty)
        data.tasks = names[data.tasks]
        return data

    @classmethod
    def binary(cls, inputs: Any, labels: Tensor) -> "TaskData":
        """One task: ``labels`` (N,) are 0 or 1.

        Examples:
            >>> TaskData.binary(torch.zeros(3, 2), torch.tensor([0, 1, 1])).num_blocks
            1
        """
        inputs = as_inputs(inputs)
        return cls(inputs, structure("labels", labels, len(inputs), kind="binary")[:, None])

    def check(self, samples: int, *, replacement: bool) -> None:
        """Half of the samples are positives, half negatives."""
        if samples < 2:
            raise ValueError(
                f"samples_per_block must be at least 2 (a positive and a negative), got {samples}"
            )
        if replacement:
            return
        half = samples // 2
        sides = ("positive", self.positives, half), ("negative", self.negatives, samples - half)
        for name, counts, wanted in sides:
            short = (counts < wanted).nonzero().flatten().tolist()
            if short:
                raise ValueError(
                    f"tasks {short} have fewer than the {wanted} {name} samples requested without "
                    "replacement"
                )

    def draw(
        self, blocks: Tensor, spread: Tensor, shared: Tensor, *, replacement: bool = True
    ) -> TaskBatch:
        """For each task, half positives and half negatives."""
        half = spread.shape[1] // 2
        first, second = self.positives[blocks], self.negatives[blocks]
        place = torch.cat(
            [
                draw(spread[:, :half], first, replacement=replacement),
                first[:, None] + draw(spread[:, half:], second, replacement=replacement),
            ],
            dim=1,
        )
        rows = self._order[blocks[:, None], place].flatten()
        return TaskBatch(blocks, rows, positives=half)

    def spans(self, size: int) -> Sequence[Tensor]:
        """Samples in order."""
        return torch.split(torch.arange(len(self)), size)

    def chunk(self, span: Tensor) -> LabelBatch:
        """All tasks, scaled so that chunks average to the whole."""
        blocks = torch.arange(self.num_blocks)
        weights = len(self) / torch.stack([self.positives, self.negatives]).double()
        part = slice(int(span[0]), int(span[-1]) + 1)
        return LabelBatch(
            blocks, span, self.positive[part], self.negative[part], weights / len(span)
        )

    def batch(self, rows: Any, blocks: Tensor | None = None) -> LabelBatch:
        """A batch of given samples that is shared by the given tasks (by default all).

        Tasks without a positive or without a negative among the samples are left out; a sample that
        comes twice counts once.

        Examples:
            >>> data = TaskData.from_classes(torch.rand(4, 2), torch.tensor([0, 1, 2, 1]))
            >>> data.batch(torch.tensor([0, 2, 3])).positive.shape
            torch.Size([3, 3])
            >>> data.batch(torch.tensor([0, 3])).blocks  # no sample of class 2
            tensor([0, 1])
        """
        shared = self._shared(self._distinct(rows), blocks)
        if not len(shared):
            return cast(LabelBatch, EmptyBatch())
        batch = self.collate(shared)
        assert isinstance(batch, LabelBatch)
        kind = torch.float32 if batch.scale is None else batch.scale.dtype
        return replace(batch, positive=batch.positive.to(kind), negative=batch.negative.to(kind))

    def _shared(self, rows: Tensor, blocks: Tensor | None) -> LabelBatch:
        positive, negative = self.positive[rows], self.negative[rows]
        if blocks is None:
            blocks = torch.arange(self.num_blocks)
        else:
            positive, negative = positive[:, blocks], negative[:, blocks]
        scale = 1 / torch.stack([positive.sum(0), negative.sum(0)]).double()
        here = scale.isfinite().all(0)
        return LabelBatch(blocks[here], rows, positive[:, here], negative[:, here], scale[:, here])
