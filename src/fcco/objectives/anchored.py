"""Objectives whose blocks are anchors; the anchors of one step share a pool of partners."""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from fcco.objectives.score import ScoreObjective
from fcco.problem.batches import PairBatch
from fcco.problem.draws import draw

__all__ = ["AnchoredObjective", "divided"]

PAIRS = 1 << 22
"""Largest number of pairs in one chunk of an exact pass."""


class AnchoredObjective(ScoreObjective):
    """Base class of objectives that compare an anchor with one or two ranges of partners.

    The samples of a task are put in one order, and every range is an interval of that order. The
    r-th inner value of block i is the sum of phi(partner, anchor) over its r-th range, divided by
    ``sizes[i]``. For example, average precision has two ranges (the positives, and all samples)
    and partial AUC has one (the negatives).

    ``_build`` of a subclass sets the attributes below. Drawing partners, chunks of an exact pass
    and batches of given samples are derived from them here.
    """

    anchors: Tensor
    """(m,), the sample that is the anchor of each block."""
    columns: Tensor
    """(m,), the task of each block."""
    places: Tensor
    """(T, N), the position of each sample in the order of a task; -1 where it has no label."""
    start: Tensor
    """(R, m), the position in that order at which each range of a block begins."""
    stop: Tensor
    """(R, m), the position after the last one of each range."""
    sizes: Tensor
    """(m,), the number of samples that the sums of a block are divided by."""
    strata: list[Tensor]
    """Samples that may be partners, in one or several parts. A step draws equally many from each
    part and weights them by the size of the part."""
    own_pair: bool = False
    """Whether an anchor is its own partner. It is then counted once and never drawn."""
    population: int | None = None
    """The range that ``sizes`` counts (-1 is the last one), or None if it counts the whole pool."""

    def check_draw(self, samples: int, *, replacement: bool) -> None:
        """Raise a ``ValueError`` if some part of the pool has too few partners."""
        if samples < len(self.strata):
            raise ValueError(
                f"samples_per_block must be at least {len(self.strata)} (one from each part of the "
                f"partners), got {samples}"
            )
        for number, (part, count) in enumerate(
            zip(self.strata, divided(samples, len(self.strata)), strict=True)
        ):
            if not replacement and len(part) < count:
                raise ValueError(
                    f"stratum {number} has {len(part)} partners, fewer than the {count} requested "
                    "without replacement"
                )

    def draw(
        self, blocks: Tensor, own: Tensor, shared: Tensor, *, replacement: bool = True
    ) -> PairBatch:
        """Draw partners that all anchors share: b + k samples give b * k pairs."""
        partners, shares = [], []
        counts = divided(len(shared), len(self.strata))
        for part, uniform in zip(self.strata, shared.split(counts), strict=True):
            place = draw(uniform[None], torch.tensor([len(part)]), replacement=replacement)[0]
            partners.append(part[place])
            # Each of the k drawn stands for len(part) / k samples, so the weighted sum is an
            # unbiased estimate of the sum over the part.
            shares.append(torch.full((len(uniform),), len(part) / len(uniform)).double())
        return self._batch(blocks, torch.cat(partners), torch.cat(shares))

    def spans(self, size: int) -> Sequence[Tensor]:
        """Divide the anchors into chunks; each chunk passes all partners through the model."""
        total = sum(len(part) for part in self.strata)
        return torch.split(torch.arange(self.num_blocks), max(1, min(size, PAIRS // total)))

    def chunk(self, span: Tensor) -> PairBatch:
        """Return a batch of the given anchors with all partners."""
        partners = torch.cat(self.strata)
        return self._batch(span, partners, torch.ones(len(partners), dtype=torch.float64))

    def among(self, index: Tensor) -> PairBatch:
        """Return the anchors among ``index``, compared with the other partners among them."""
        order, anchors = self._by_anchor
        first = torch.searchsorted(anchors, index)
        counts = torch.searchsorted(anchors, index, right=True) - first
        # One sample may be the anchor of several blocks, one per task. These lines list the
        # blocks order[first : first + count] of every sample without a Python loop.
        shift = (first - (counts.cumsum(0) - counts)).repeat_interleave(counts)
        blocks = order[shift + torch.arange(len(shift))]
        partners = index[self._in_pool[index]]
        counted = torch.ones(len(blocks), len(partners), dtype=torch.bool)
        if self.population is not None:
            counted = self._inside(blocks, partners.expand(len(blocks), -1))[self.population]
        # An own pair is counted exactly. The other partners of the batch stand for all the
        # remaining samples, so they share the weight ``total``.
        others = (counted & (partners != self.anchors[blocks, None])).sum(1)
        total = self.sizes[blocks] - int(self.own_pair)
        # A block without any other partner in the batch would have the estimate 0 of a positive
        # sum. It is left out, unless there really is no other partner.
        kept = (others > 0) | (total == 0)
        share = total[kept].double() / others[kept].clamp(min=1)
        return self._batch(blocks[kept], partners, share.unsqueeze(1), index)

    def _inside(self, blocks: Tensor, partners: Tensor) -> Tensor:
        """Return which of the partners (b, k) lie in which range of their block, (R, b, k)."""
        place = self.places[self.columns[blocks, None], partners]
        return (place >= self.start[:, blocks, None]) & (place < self.stop[:, blocks, None])

    def _weigh(self, blocks: Tensor, inside: Tensor) -> Tensor:
        """Return the weights (R, b, k) of partners, given in which ranges they lie."""
        return inside.double()

    def _batch(
        self, blocks: Tensor, partners: Tensor, share: Tensor, rows: Tensor | None = None
    ) -> PairBatch:
        """Form a batch of anchors with common partners.

        Args:
            blocks: (b,), the blocks.
            partners: (k,), the samples that serve as partners of all of them.
            share: (k,) or (b, k), how many samples each partner stands for.
            rows: the samples of the batch, which include all anchors and partners. If None, the
                inputs of the batch are the anchors followed by the partners.
        """
        anchors = self.anchors[blocks]
        inputs = torch.cat([anchors, partners])
        own, places = torch.arange(len(blocks)), torch.arange(len(blocks), len(inputs))
        if rows is not None:
            inputs, (ordered, order) = rows, rows.sort()
            own, places = (order[torch.searchsorted(ordered, part)] for part in (anchors, partners))
        here, there = anchors.unsqueeze(1), partners.expand(len(blocks), -1)
        # A drawn partner may be the anchor itself. It gets the weight 0 here, because its own
        # pair is either excluded or appended below with the exact weight 1.
        share = share.expand(len(blocks), len(partners)).masked_fill(here == there, 0)
        if self.own_pair:
            there = torch.cat([there, here], dim=1)
            share = torch.cat([share, share.new_ones(len(blocks), 1)], dim=1)
            places = torch.cat([places.expand(len(blocks), -1), own.unsqueeze(1)], dim=1)
        weights = self._weigh(blocks, self._inside(blocks, there))
        return PairBatch(
            blocks,
            inputs,
            partners=places,
            weights=weights * (share / self.sizes[blocks, None]),
            samples=len(partners),
            anchors=own,
            columns=self.columns[blocks],
            fixed=int(self.own_pair),
        )

    @cached_property
    def _by_anchor(self) -> tuple[Tensor, Tensor]:
        """Return the blocks sorted by their anchors, and these anchors."""
        anchors, order = self.anchors.sort(stable=True)
        return order, anchors

    @cached_property
    def _in_pool(self) -> Tensor:
        """Return which samples may be partners, (N,)."""
        pool = torch.zeros(self.num_samples, dtype=torch.bool)
        return pool.index_fill(0, torch.cat(self.strata), True)


def divided(samples: int, parts: int) -> list[int]:
    """Divide ``samples`` into equal parts; the first parts take the remainder.

    Examples:
        >>> divided(5, 2)
        [3, 2]
    """
    each, rest = divmod(samples, parts)
    return [each + (number < rest) for number in range(parts)]
