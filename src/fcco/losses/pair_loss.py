"""Risks of pairs: a sum for each anchor, kept up to date by what a batch changes in it."""

from abc import abstractmethod

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fcco.losses.guard import Guard
from fcco.losses.pairs import Pairs
from fcco.losses.rows import Rows, parts_of
from fcco.losses.table import Change, ScoreLoss

__all__ = ["PairLoss"]

_GONE = 2.0**-50
"""A sum this small beside what it was has lost all its digits."""


class PairLoss(ScoreLoss):
    """F = sum_i c_i f_i(u_i), u_i a sum over the pairs of anchor i.

    A step adds to the rows of a changed partner's group what its terms have changed, and sums the
    rows of changed anchors from their pairs: O(B (m + N)). It does the same for rows that have lost
    20 of their 53 bits (a dominant exponential was taken out), for at most B of them or a million
    pairs in one step; a row that waits for its turn is never taken for smaller than 1e-15 of what
    it was.

    Besides the table it keeps 24 or 32 bytes per anchor that are saved with it, and the structure:
    32 bytes per anchor, 8 per partner, 3 per sample and task.

    Args:
        pairs: anchors and their partners.
        weights: (m,), c_i when all samples are seen.
        guard: for a risk so steep that a stale table could mislead.
    """

    sums: Tensor
    """(m, 1) or (m, 2), u_i over exp(scale), of all partners and of the marked ones."""
    scale: Tensor
    """(m,), see ``Rows``."""
    costs: Tensor
    """(m,), f_i(u_i)."""
    counts: Tensor
    """(2, G), anchors and partners seen of each group."""
    weights: Tensor

    def __init__(self, pairs: Pairs, weights: Tensor, guard: Guard | None = None) -> None:
        super().__init__(*pairs.anchor.shape)
        self.pairs, self.guard = pairs, guard
        rows = len(pairs.group)
        self._running("sums", torch.ones(rows, 1 if pairs.marked is None else 2))
        self._running("scale", torch.zeros(rows))
        self._running("costs", torch.zeros(rows))
        self.register_buffer("counts", torch.zeros_like(pairs.sizes))
        self._structure(weights=weights)

    @abstractmethod
    def _outer(self, sums: Tensor, scale: Tensor, partners: Tensor) -> Tensor:
        """f_i(u_i) of rows (..., 1) or (..., 2), given how many partners each has."""

    def _weights_so_far(self) -> Tensor:
        """c_i of all rows, given the samples seen."""
        seen = self.seen[self.pairs.anchors.cells // self.scores.shape[1]]
        return self.pairs.mean_weights(self.counts) * seen

    def exact(self, scores: Tensor) -> Tensor:
        """F of all N scores, differentiable; O(m N), some pairs at a time."""
        h = self._all(scores).flatten()
        total = h.new_zeros((), dtype=torch.float64)

        def part(h: Tensor, groups: Tensor, line: Tensor, column: Tensor) -> Tensor:
            panel = self.pairs.panel(groups, h, None)
            sums, scale = self.pairs.sum(panel, line, panel.anchors[line, column])
            costs = self._outer(sums, scale, self.pairs.sizes[1, groups[line]])
            return (self.weights[panel.rows[line, column]] * costs).sum()

        for groups in self.pairs.split(torch.arange(self.counts.shape[1], device=h.device)):
            rows, inside = self.pairs.anchors.places(groups)
            line, column = (inside & (self.weights[rows] > 0)).nonzero().unbind(1)
            for some in parts_of(len(line), self.pairs.partners.places(groups)[0]):
                inputs = h, groups, line[some], column[some]
                total = total + checkpoint(part, *inputs, use_reentrant=False)
        return total.to(h.dtype)

    def _look(self, change: Change) -> tuple[Tensor, Tensor | None]:
        cells, groups = self.pairs.cells(change.index)
        anchor, partner = self.pairs.anchor[change.index], self.pairs.partner[change.index]
        known = change.known.unsqueeze(1).expand(cells.shape)
        counts = [
            torch.bincount(groups[members & ~known], minlength=self.counts.shape[1])
            for members in (anchor, partner)
        ]
        change.journal.write(self.counts, ..., self.counts + torch.stack(counts))
        seen = None if change.count == len(self.seen) else self.seen
        weights = self.weights if seen is None else self._weights_so_far()
        h, old = self.scores.view(-1), change.old.double()
        slope = torch.zeros_like(old)
        for some in self.pairs.split(groups[anchor | partner].unique()):
            panel = self.pairs.panel(some, h, seen)
            rows = Rows(self.pairs, panel, self.sums[panel.rows], self.scale[panel.rows])
            line = torch.searchsorted(some, groups).clamp(max=len(some) - 1)
            own, other = (members & (some[line] == groups) for members in (anchor, partner))
            place = line[own], self.pairs.columns(groups[own], cells[own])
            marked = known if self.pairs.marked is None else self.pairs.marked[change.index]
            new = h[cells[other]].double()
            rows.move(line[other], new, old[other], known[other], marked[other])
            rows.renew(*place)
            rows.renew(*rows.lost(weights[panel.rows] > 0, len(change.index)))
            slopes = self._commit(change, rows, some, weights)
            if slopes is not None:
                slope[other] = rows.partner_slopes(slopes, line[other], new, marked[other])
                slope[own] += rows.anchor_slopes(slopes, *place)
        if self.guard is not None and change.writes:
            slope = self.guard(change, h, seen, slope, self.counts, self._outer)
        return (weights * self.costs).sum(), slope if change.slopes else None

    def _commit(self, change: Change, rows: Rows, groups: Tensor, weights: Tensor) -> Tensor | None:
        """Write rows and what they cost; dF/dsums of the rows, if wanted."""
        inside = rows.panel.inside
        places = rows.panel.rows[inside]
        with torch.enable_grad():
            sums = rows.sums.clamp(min=_GONE).requires_grad_(change.slopes)
            partners = self.counts[1, groups].clamp(min=1).unsqueeze(1)
            costs = self._outer(sums, rows.scale, partners)
        change.journal.write(self.sums, places, rows.sums[inside])
        change.journal.write(self.scale, places, rows.scale[inside])
        change.journal.write(self.costs, places, costs.detach()[inside])
        if not change.slopes:
            return None
        return torch.autograd.grad(costs, sums, weights[rows.panel.rows] * inside)[0]
