"""Blocks that are anchors; those of one step share a pool of partners."""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from fcco.objectives.score import ScoreObjective
from fcco.problem.batches import PairBatch
from fcco.problem.draws import draw

__all__ = ["AnchoredObjective", "divided"]

PAIRS = 1 << 22
"""The largest number of pairs in a chunk of an exact pass."""


class AnchoredObjective(ScoreObjective):
    """Block i is an anchor and one or two ranges of partners in one order of its task's samples.

    The r-th inner value of block i is the sum over its r-th range of phi(partner, anchor), divided
    by ``sizes[i]``. (Average precision has two ranges, the positives and all samples; partial AUC
    has one, the negatives.) ``_build`` sets the attributes below; drawing, chunks of an exact pass
    and batches of given samples follow from them.
    """

    anchors: Tensor
    """(m,), the sample of each block."""
    columns: Tensor
    """(m,), its task."""
    places: Tensor
    """(T, N), where each sample stands in the order of a task; -1 where it has no label."""
    start: Tensor
    """(R, m), where each range of a block begins in that order."""
    stop: Tensor
    """(R, m), where it ends."""
    sizes: Tensor
    """(m,), the number of samples among which the partners of a block are."""
    strata: list[Tensor]
    """Positions of samples that may be partners, in one or several parts; a step draws equally many
    from each part and weights them by the size of the part."""
    own_pair: bool = False
    """Whether an anchor is its own partner: it is never drawn and always counted, once."""
    population: int | None = None
    """The range that ``sizes`` counts, -1 for the last one; None: all samples of the pool."""

    def check_draw(self, samples: int, *, replacement: bool) -> None:
        """Every part of the pool has enough partners."""
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
        """The same partners for all anchors: b + k samples for b * k pairs."""
        partners, shares = [], []
        counts = divided(len(shared), len(self.strata))
        for part, uniform in zip(self.strata, shared.split(counts), strict=True):
            place = draw(uniform[None], torch.tensor([len(part)]), replacement=replacement)[0]
            partners.append(part[place])
            shares.append(torch.full((len(uniform),), len(part) / len(uniform)).double())
        return self._batch(blocks, torch.cat(partners), torch.cat(shares))

    def spans(self, size: int) -> Sequence[Tensor]:
        """A few anchors at a time; every chunk passes all partners through the model."""
        total = sum(len(part) for part in self.strata)
        return torch.split(torch.arange(self.num_blocks), max(1, min(size, PAIRS // total)))

    def chunk(self, span: Tensor) -> PairBatch:
        """Some anchors with all partners."""
        partners = torch.cat(self.strata)
        return self._batch(span, partners, torch.ones(len(partners), dtype=torch.float64))

    def among(self, index: Tensor) -> PairBatch:
        """The anchors among ``index``, compared with all other partners among them."""
        order, anchors = self._by_anchor
        first = torch.searchsorted(anchors, index)
        counts = torch.searchsorted(anchors, index, right=True) - first
        shift = (first - (counts.cumsum(0) - counts)).repeat_interleave(counts)
        blocks = order[shift + torch.arange(len(shift))]
        partners = index[self._in_pool[index]]
        counted = torch.ones(len(blocks), len(partners), dtype=torch.bool)
        if self.population is not None:
            counted = self._inside(blocks, partners.expand(len(blocks), -1))[self.population]
        # An anchor among the partners stands for itself alone, the other ones for all others.
        others = (counted & (partners != self.anchors[blocks, None])).sum(1)
        total = self.sizes[blocks] - int(self.own_pair)
        kept = (others > 0) | (total == 0)
        share = total[kept].double() / others[kept].clamp(min=1)
        return self._batch(blocks[kept], partners, share.unsqueeze(1), index)

    def _inside(self, blocks: Tensor, partners: Tensor) -> Tensor:
        """(R, b, k), which of the partners (b, k) lie in which range of their block."""
        place = self.places[self.columns[blocks, None], partners]
        return (place >= self.start[:, blocks, None]) & (place < self.stop[:, blocks, None])

    def _weigh(self, blocks: Tensor, inside: Tensor) -> Tensor:
        """(R, b, k), how much a partner counts that lies inside some ranges."""
        return inside.double()

    def _batch(
        self, blocks: Tensor, partners: Tensor, share: Tensor, rows: Tensor | None = None
    ) -> PairBatch:
        """Anchors with common partners; inputs are those of both, or ``rows`` that hold them.

        ``share`` says for how many partners each of them stands, (k,) or (b, k).
        """
        anchors = self.anchors[blocks]
        inputs = torch.cat([anchors, partners])
        own, places = torch.arange(len(blocks)), torch.arange(len(blocks), len(inputs))
        if rows is not None:
            inputs, (ordered, order) = rows, rows.sort()
            own, places = (order[torch.searchsorted(ordered, part)] for part in (anchors, partners))
        here, there = anchors.unsqueeze(1), partners.expand(len(blocks), -1)
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
        """The blocks, sorted by the positions of their anchors, and these positions."""
        anchors, order = self.anchors.sort(stable=True)
        return order, anchors

    @cached_property
    def _in_pool(self) -> Tensor:
        """(N,), whether a sample may be a partner."""
        pool = torch.zeros(self.num_samples, dtype=torch.bool)
        return pool.index_fill(0, torch.cat(self.strata), True)


def divided(samples: int, parts: int) -> list[int]:
    """Divide samples equally; the first parts take the remainder.

    Examples:
        >>> divided(5, 2)
        [3, 2]
    """
    each, rest = divmod(samples, parts)
    return [each + (number < rest) for number in range(parts)]
