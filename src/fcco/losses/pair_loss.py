"""Risks of pairs: a sum for each anchor, kept up to date by what a batch changes in it."""

from abc import abstractmethod

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fcco.losses.pairs import PAIRS, TINY, Pairs
from fcco.losses.table import Change, ScoreLoss

__all__ = ["PairLoss"]

_LOST = 2.0**-26
"""A sum this small beside what it was has lost half its digits."""
_GONE = 2.0**-50
"""A sum this small has lost all of them."""


class PairLoss(ScoreLoss):
    """F = sum_i c_i f_i(u_i), u_i a sum over the pairs of anchor i.

    Row i keeps u_i as ``sums[i] * exp(scale[i])``, where scale follows the largest value since the
    row was summed from its pairs: how small ``sums`` is shows the digits that differences of sums
    have lost.

    A step adds to the rows of a changed partner's group what its terms have changed, and sums the
    rows of changed anchors from their pairs: O(B (m + N)). It does the same for rows that have lost
    half their digits (a dominant exponential was taken out), for at most B of them or a million
    pairs in one step; a row that waits for its turn is never taken for smaller than 1e-15 of what
    it was.

    Besides the table it keeps 16 or 24 bytes per anchor that are saved with it, and the structure:
    24 bytes per anchor, 8 per partner, 3 per sample and task.

    Args:
        pairs: anchors and their partners.
    """

    sums: Tensor
    """(m, 1) or (m, 2), see ``Pairs``."""
    scale: Tensor
    """(m,)."""
    counts: Tensor
    """(2, G), anchors and partners seen of each group."""

    def __init__(self, pairs: Pairs) -> None:
        super().__init__(*pairs.anchor.shape)
        self.pairs = pairs
        rows = len(pairs.group)
        self._running("sums", torch.ones(rows, 1 if pairs.marked is None else 2))
        self._running("scale", torch.zeros(rows))
        self.register_buffer("counts", torch.zeros_like(pairs.sizes))

    @abstractmethod
    def _outer(self, sums: Tensor, scale: Tensor, partners: Tensor) -> Tensor:
        """f_i(u_i) of rows, given how many partners each has."""

    def _weights(self, everyone: bool) -> Tensor:
        """c_i: a mean over the anchors of a group, and over the groups with two kinds of members.

        Args:
            everyone: take all samples for seen.
        """
        anchors, partners = (self.pairs.sizes if everyone else self.counts).unbind()
        both = (anchors > 0) & (partners > (anchors if self.pairs.own else 0))
        each = both / (anchors.clamp(min=1) * both.sum().clamp(min=1)).double()
        return each[self.pairs.group] * self._counted(everyone)

    def _counted(self, everyone: bool) -> Tensor:
        """(m,), which rows belong to samples that were seen."""
        if everyone:
            return torch.ones_like(self.pairs.group, dtype=torch.bool)
        return self.seen[self.pairs.anchors.cells // self.scores.shape[1]]

    def exact(self, scores: Tensor) -> Tensor:
        """F of all N scores, differentiable; O(m N), a million pairs at a time."""
        h = self._all(scores).flatten()
        everyone, total = torch.ones_like(self.seen), h.new_zeros(())
        weights = self._weights(everyone=True)
        counted = (weights > 0).nonzero().flatten()

        def part(h: Tensor, rows: Tensor) -> Tensor:
            sums, scale = self.pairs.sum(rows, h, everyone)
            costs = self._outer(sums, scale, self.pairs.sizes[1, self.pairs.group[rows]])
            return (weights[rows].to(h.dtype) * costs).sum()

        for some in self.pairs.split(self.pairs.group[counted], 1):
            total = total + checkpoint(part, h, counted[some], use_reentrant=False)
        return total

    def _look(self, change: Change) -> tuple[Tensor, Tensor | None]:
        cells, groups = self.pairs.cells(change.index)
        anchor, partner = self.pairs.anchor[change.index], self.pairs.partner[change.index]
        known = change.known.unsqueeze(1).expand(cells.shape)
        counts = self.counts.clone()
        for count, members in zip(counts, (anchor, partner), strict=True):
            count += torch.bincount(groups[members & ~known], minlength=len(count))
        change.journal.write(self.counts, ..., counts)
        self._move(change, cells[partner], groups[partner], change.old[partner], known[partner])
        rows = self.pairs.rows(groups[anchor], cells[anchor])
        self._renew(change, rows, groups.unique())
        value, slopes = self._value(change.slopes)
        if slopes is None:
            return value, None
        slope = torch.zeros_like(change.old, dtype=torch.float64)
        slope[partner] = self._of_partners(cells[partner], groups[partner], slopes)
        slope[anchor] += self._of_anchors(rows, slopes)
        return value, slope

    def _move(
        self, change: Change, cells: Tensor, groups: Tensor, old: Tensor, known: Tensor
    ) -> None:
        """u_i += term(new) - term(old) for changed partners and all anchors of their groups.

        Rows of changed anchors come out wrong, and are summed from their pairs next.
        """
        term, h = self.pairs.term, self.scores.view(-1)
        for some in self.pairs.split(groups, 0):
            distinct, which = groups[some].unique(return_inverse=True)
            rows, inside = self.pairs.anchors.places(distinct)
            anchors = h[self.pairs.anchors.cells[rows]].double()[which]
            now, before = (
                self.pairs.sign * (scores.double().unsqueeze(1) - anchors)
                for scores in (h[cells[some]], old[some])
            )
            places, size = which.unsqueeze(1).expand(anchors.shape), term.size(now)
            scale = self.scale[rows].scatter_reduce(0, places, size, "amax")
            counts = inside[which]
            terms = term(now, scale[which], counts)
            terms -= term(before, scale[which], counts & known[some].unsqueeze(1))
            parts = [terms]
            if self.pairs.marked is not None:
                parts.append(terms * self.pairs.marked.view(-1)[cells[some]].unsqueeze(1))
            added = [torch.zeros_like(scale).index_add(0, which, part) for part in parts]
            kept = self.sums[rows] * (self.scale[rows] - scale).exp().unsqueeze(2)
            sums = kept + torch.stack(added, dim=2)
            grown = sums[:, :, :1].clamp(min=1)
            change.journal.write(self.sums, rows[inside], (sums / grown)[inside])
            change.journal.write(self.scale, rows[inside], (scale + grown.log().squeeze(2))[inside])

    def _renew(self, change: Change, rows: Tensor, groups: Tensor) -> None:
        """Sum rows from their pairs, and those of these groups that have lost half their digits."""
        places, inside = self.pairs.anchors.places(groups)
        lost = places[inside]
        lost = lost[(self.sums[lost, 0] < _LOST) & (self.scale[lost] > TINY)]
        lost = lost[self.seen[self.pairs.anchors.cells[lost] // self.scores.shape[1]]]
        if len(lost):
            width = int(self.pairs.sizes[1, self.pairs.group[lost]].max())
            limit = max(len(change.index), PAIRS // width)
            worst = self.sums[lost, 0].argsort()[:limit]
            rows = torch.cat([rows, lost[worst]]).unique()
        for some in self.pairs.split(self.pairs.group[rows], 1):
            h = self.scores.view(-1).double()
            sums, scale = self.pairs.sum(rows[some], h, self.seen)
            change.journal.write(self.sums, rows[some], sums)
            change.journal.write(self.scale, rows[some], scale)

    def _value(self, slopes: bool) -> tuple[Tensor, Tensor | None]:
        """F and, if wanted, its derivatives by ``sums``."""
        weights = self._weights(everyone=int(self.num_seen) == len(self.seen))
        counted = (weights > 0).unsqueeze(1)
        with torch.enable_grad():
            sums = self.sums.clamp(min=_GONE).where(counted, 1.0).requires_grad_()
            costs = self._outer(sums, self.scale, self.counts[1, self.pairs.group].clamp(min=1))
            value = (weights * costs.where(weights > 0, 0.0)).sum()
        return value.detach(), torch.autograd.grad(value, sums)[0] if slopes else None

    def _of_partners(self, cells: Tensor, groups: Tensor, slopes: Tensor) -> Tensor:
        """dF/dh_k = sum_i dF/du_i term' over the anchors i that k is a partner of."""
        h, parts = self.scores.view(-1), list[Tensor]()
        for some in self.pairs.split(groups, 0):
            distinct, which = groups[some].unique(return_inverse=True)
            rows, counts = self.pairs.anchors.places(distinct)
            anchors, counts = self.pairs.anchors.cells[rows], counts[which]
            if self.pairs.own:
                counts = counts & (anchors[which] != cells[some].unsqueeze(1))
            weight = slopes[rows][which]
            with torch.enable_grad():
                own = h[cells[some]].double().requires_grad_()
                s = self.pairs.sign * (own.unsqueeze(1) - h[anchors].double()[which])
                terms = self.pairs.term(s, self.scale[rows][which], counts)
            by = weight[:, :, 0]
            if self.pairs.marked is not None:
                by = by + weight[:, :, 1] * self.pairs.marked.view(-1)[cells[some]].unsqueeze(1)
            parts += torch.autograd.grad(terms, own, by)
        return torch.cat(parts) if parts else slopes.new_zeros(0)

    def _of_anchors(self, rows: Tensor, slopes: Tensor) -> Tensor:
        """dF/dh_i = -dF/du_i sum_j term' over the partners j of i."""
        h, parts = self.scores.view(-1).double(), list[Tensor]()
        for some in self.pairs.split(self.pairs.group[rows], 1):
            with torch.enable_grad():
                own = h[self.pairs.anchors.cells[rows[some]]].requires_grad_()
                s, counts, marked = self.pairs.of_anchors(rows[some], own, h, self.seen)
                terms = self.pairs.term(s, self.scale[rows[some]].unsqueeze(1), counts)
            weight = slopes[rows[some]]
            by = weight[:, :1].expand(terms.shape)
            if marked is not None:
                by = by + weight[:, 1:] * marked
            parts += torch.autograd.grad(terms, own, by)
        return torch.cat(parts) if parts else slopes.new_zeros(0)
