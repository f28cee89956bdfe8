"""A data set of lists (queries with their items); blocks are items within their list."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fcco.data.arguments import as_inputs, structure
from fcco.data.blocks import BlockData
from fcco.data.draws import draw
from fcco.problem.batches import AnchorBatch

__all__ = ["ListData"]


class ListData(BlockData[AnchorBatch]):
    """Items of lists, list by list, for ``NDCG`` and ``ListNet``.

    Block i is the i-th relevant item (or, with ``relevant=False``, item i), compared with the
    items of its list.

    Args:
        inputs: N items.
        grades: (N,), the relevance of each item; 0 is irrelevant.
        lengths: (number of lists,).
        relevant: blocks are only the items with a positive grade (``NDCG``), or all (``ListNet``).

    Examples:
        >>> data = ListData(torch.rand(5, 2), torch.tensor([0, 1, 0, 2, 1]), torch.tensor([2, 3]))
        >>> data.num_blocks
        3
    """

    def __init__(
        self, inputs: Any, grades: Tensor, lengths: Tensor, *, relevant: bool = True
    ) -> None:
        inputs = as_inputs(inputs)
        lengths = structure("lengths", lengths, None, kind="whole")
        grades = structure("grades", grades, None, kind="real")
        if len(grades) != len(inputs) or int(lengths.sum()) != len(inputs):
            raise ValueError(
                f"{len(inputs)} items need as many grades, got {len(grades)}, and lengths with "
                f"that sum, got {int(lengths.sum())}"
            )
        if (lengths < 1).any():
            empty = (lengths < 1).nonzero().flatten().tolist()
            raise ValueError(f"lists {empty} are empty")
        owner = torch.arange(len(lengths)).repeat_interleave(lengths)
        items = (grades > 0).nonzero().flatten() if relevant else torch.arange(len(grades))
        if not len(items):
            raise ValueError("grades: no item is relevant")
        self.inputs = inputs
        self.grades, self.lengths = grades, lengths
        self.num_blocks = len(items)
        self._items = items
        self._owner = owner
        self._block = torch.full((len(grades),), -1).index_put((items,), torch.arange(len(items)))
        self._starts = (lengths.cumsum(0) - lengths)[owner[items]]
        self._sizes = lengths[owner[items]]

    def check(self, samples: int, *, replacement: bool) -> None:
        """Without replacement, no list is shorter than the samples."""
        super().check(samples, replacement=replacement)
        short = (self.lengths < samples).nonzero().flatten().tolist()
        if not replacement and short:
            raise ValueError(
                f"lists {short[:10]} have fewer than the {samples} items requested without "
                "replacement"
            )

    def draw(
        self, blocks: Tensor, spread: Tensor, shared: Tensor, *, replacement: bool = True
    ) -> AnchorBatch:
        """For each item, other items of its list; the item itself always counts."""
        sizes = self._sizes[blocks]
        place = draw(spread, sizes, replacement=replacement)
        partners = self._starts[blocks, None] + place
        weights = torch.full(partners.shape, 1 / partners.shape[1], dtype=torch.float64)
        return self._batch(blocks, partners, weights, spread.shape[1])

    def spans(self, size: int) -> Sequence[Tensor]:
        """A few blocks at a time, so that their lists together have about ``size`` items."""
        longest = int(self.lengths.max())
        return torch.split(torch.arange(self.num_blocks), max(1, size // longest))

    def chunk(self, span: Tensor) -> AnchorBatch:
        """Some blocks, each with its whole list."""
        sizes = self._sizes[span]
        place = torch.arange(int(sizes.max())).expand(len(span), -1)
        inside = place < sizes[:, None]
        partners = self._starts[span, None] + torch.where(inside, place, 0)
        return self._batch(span, partners, inside / sizes[:, None].double(), sizes)

    def among(self, rows: Tensor) -> AnchorBatch:
        """The items that are blocks, each compared with the items of its list among ``rows``."""
        own = (self._block[rows] >= 0).nonzero().flatten()
        other = self._owner[rows[own], None] == self._owner[rows]
        other &= rows[own, None] != rows
        count, size = other.sum(1), self._sizes[self._block[rows[own]]]
        kept = (count > 0) | (size == 1)
        own, other, count, size = own[kept], other[kept], count[kept], size[kept]
        share = (size - 1) / (size * count.clamp(min=1)).double()
        places = torch.arange(len(rows)).expand(len(own), -1)
        return AnchorBatch(
            self._block[rows[own]],
            rows,
            anchors=own,
            partners=torch.cat([places, own[:, None]], dim=1),
            weights=torch.cat([other * share[:, None], 1 / size[:, None].double()], dim=1),
            samples=count.clamp(min=1),
            sure=1,
        )

    def _batch(
        self, blocks: Tensor, partners: Tensor, weights: Tensor, samples: int | Tensor
    ) -> AnchorBatch:
        items = self._items[blocks]
        weights = weights.masked_fill(partners == items[:, None], 0)
        sure = 1 / self._sizes[blocks, None].double()
        count = partners.numel()
        places = torch.arange(count).view(partners.shape)
        own = torch.arange(count, count + len(blocks))
        return AnchorBatch(
            blocks,
            torch.cat([partners.flatten(), items]),
            anchors=own,
            partners=torch.cat([places, own[:, None]], dim=1),
            weights=torch.cat([weights, sure], dim=1),
            samples=samples,
            sure=1,
        )
