"""A data set of pairs of views, for contrastive objectives."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from fcco.data.arguments import as_inputs
from fcco.data.blocks import PAIRS, BlockData, Device
from fcco.data.draws import draw
from fcco.problem.batches import ViewBatch

__all__ = ["ViewData"]


class ViewData(BlockData[ViewBatch]):
    """Pairs (x_i, y_i): an image and its caption, or two augmentations of one image.

    Block i < n compares x_i with the y_j of the other pairs; if two-way, block n + i compares y_i
    with the x_j.

    Args:
        first: n first views.
        second: n second views. An object with ``[int]`` may make a new random view each time.
        two_way: both directions, m = 2n.

    Examples:
        >>> ViewData(torch.rand(5, 2), torch.rand(5, 3), two_way=True).num_blocks
        10
    """

    def __init__(self, first: Any, second: Any, *, two_way: bool = False) -> None:
        first, second = as_inputs(first), as_inputs(second)
        if len(first) != len(second) or len(first) < 2:
            raise ValueError(
                f"at least two pairs are needed, got {len(first)} first and {len(second)} second "
                "views"
            )
        self.inputs, self.second = first, second
        self.num_blocks = (2 if two_way else 1) * len(first)

    def draw(
        self, blocks: Tensor, spread: Tensor, shared: Tensor, *, replacement: bool = True
    ) -> ViewBatch:
        """The same partners for all anchors; the pair of an anchor is not one of its partners."""
        size = torch.tensor([len(self)])
        return self._batch(blocks, draw(shared[None], size, replacement=replacement)[0])

    def check(self, samples: int, *, replacement: bool) -> None:
        """Without replacement, there are enough pairs."""
        super().check(samples, replacement=replacement)
        if not replacement and samples > len(self):
            raise ValueError(
                f"{samples} samples_per_block without replacement, but only {len(self)} pairs"
            )

    def spans(self, size: int) -> Sequence[Tensor]:
        """A few anchors at a time; every chunk passes all pairs through the model."""
        fitting = max(1, min(size, PAIRS // len(self)))
        return torch.split(torch.arange(self.num_blocks), fitting)

    def chunk(self, span: Tensor) -> ViewBatch:
        """Some anchors with all pairs."""
        return self._batch(span, torch.arange(len(self)))

    def among(self, rows: Tensor) -> ViewBatch:
        """These pairs, compared with one another; none if there is only one."""
        blocks = rows if len(rows) > 1 else rows[:0]
        if self.num_blocks > len(self):
            blocks = torch.cat([blocks, blocks + len(self)])
        pairs = blocks % len(self)
        return ViewBatch(
            blocks,
            rows,
            second=torch.empty(0),
            anchors=torch.arange(len(rows)).repeat(2)[: len(blocks)],
            backward=blocks >= len(self),
            partners=torch.arange(len(rows)),
            weights=(pairs[:, None] != rows).double() / max(len(rows) - 1, 1),
        )

    def whole(self) -> ViewBatch:
        """All anchors with all pairs, whose weights are not listed."""
        blocks = torch.arange(self.num_blocks)
        return ViewBatch(
            blocks,
            self.inputs,
            second=self.second,
            anchors=blocks % len(self),
            backward=blocks >= len(self),
            partners=torch.arange(len(self)),
            weights=torch.empty(0),
        )

    def collate(self, batch: ViewBatch) -> ViewBatch:
        """Both views of every pair."""
        return super().collate(replace(batch, second=self.take(self.second, batch.inputs)))

    def through(self, model: Any, size: int, device: Device = None) -> tuple[Self, Any]:
        """The embeddings of both views, each by its own encoder."""
        first, second = model if isinstance(model, tuple) else (model, model)
        other = copy(self)
        other.inputs = self.outputs(first, self.inputs, size, device)
        other.second = self.outputs(second, self.second, size, device)
        return other, torch.nn.Identity()

    def _batch(self, blocks: Tensor, partners: Tensor) -> ViewBatch:
        pairs = blocks % len(self)
        # g_i is a mean over the n - 1 others, of which the sample holds n - 1 of n.
        share = len(self) / ((len(self) - 1) * len(partners))
        weights = torch.full((len(blocks), len(partners)), share, dtype=torch.float64)
        places = torch.arange(len(blocks), len(blocks) + len(partners))
        return ViewBatch(
            blocks,
            torch.cat([pairs, partners]),
            second=torch.empty(0),
            anchors=torch.arange(len(blocks)),
            backward=blocks >= len(self),
            partners=places,
            weights=weights.masked_fill(pairs[:, None] == partners, 0),
        )
