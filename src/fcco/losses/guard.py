"""What keeps a steep risk safe when the table is stale: lean on the samples seen last."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fcco.losses.pairs import Pairs, Panel
from fcco.losses.rows import Rows
from fcco.losses.table import Change

__all__ = ["Guard"]

Outer = Callable[[Tensor, Tensor, Tensor], Tensor]

_RECENT = 64
"""Anchors and partners of each task that count as recent."""
_FEWEST = 8
"""Of these, the ones that count however stale the table is."""


class Guard(nn.Module):
    """How far remembered scores are off, and the samples that are off the least.

    A batch shows how far the scores of its samples have moved since they were written, delta in
    the root mean square. If that changes a term by a factor e^t with t > 1, the table is too old
    for the risk, and the gradient is, by a share of 1 - 1/t, that of the risk of recent samples:
    the batch and, of a task, the last 64/t anchors and partners (at least 8). A table that no score
    has moved from is never too old, nor is one that the batch has renewed as a whole.

    In the first pass no sample comes twice. Then delta is how far the last 64 scores lie from those
    before them, in mean and spread, if that is more than six standard errors.

    Args:
        pairs: anchors and partners; groups are tasks.
        steepness: how many factors e a change of a term by one such factor is in the risk.
    """

    moved: Tensor
    """(T,), the mean square of what scores have moved, over the last 64 samples or so."""
    recent: Tensor
    """(2, T, 64), cells of anchors and of partners, the last first; -1 where there is none."""

    def __init__(self, pairs: Pairs, steepness: float) -> None:
        super().__init__()
        tasks = pairs.anchor.shape[1]
        self.pairs, self.steepness = pairs, steepness
        self.register_buffer("moved", torch.zeros(tasks, dtype=torch.float64))
        self.register_buffer("recent", torch.full((2, tasks, _RECENT), -1))
        self._last: tuple[Tensor, Tensor, Tensor] | None = None

    def forward(
        self,
        change: Change,
        h: Tensor,
        seen: Tensor | None,
        slope: Tensor,
        counts: Tensor,
        outer: Outer,
    ) -> Tensor:
        """dF/dh of the batch, leaning on recent samples as far as the table is stale.

        Args:
            change: of the table.
            h: the flattened table.
            seen: (N,), which samples have a score; None: all.
            slope: (B, T), dF/dh by the table.
            counts: (2, T), anchors and partners seen.
            outer: f_i of sums, scale and the number of partners.
        """
        cells, steps = self._enter(change), self._steps(change, h)
        again = torch._C._current_graph_task_id() >= 0  # by activation checkpointing
        if again and self._last is not None and self._last[0].equal(change.index):
            _, lean, cells = self._last
        else:
            lean = self._lean(change, steps, h, seen)
            lean = lean.masked_fill((counts <= _RECENT).all(0), 0)  # all samples are recent
            # The further the table is gone, the sooner recent samples are too old as well.
            age = torch.arange(cells.shape[2], device=h.device) - len(slope)
            few = (_RECENT * (1 - lean)).clamp(min=_FEWEST)
            cells = cells.masked_fill(age >= few.unsqueeze(1), -1)
            self._last = change.index, lean, cells
        if not (change.slopes and lean.any()):
            return slope
        return slope.lerp(self._slopes(len(slope), cells, h, counts, outer), lean)

    def _steps(self, change: Change, h: Tensor) -> Tensor:
        """(k, T), how far the scores of the batch have moved that were known."""
        new = h[self.pairs.cells(change.index)[0]].double()
        return (new - change.old.double())[change.known]

    def _lean(self, change: Change, steps: Tensor, h: Tensor, seen: Tensor | None) -> Tensor:
        """(T,), the share of recent samples in the gradient."""
        if seen is not None and (drift := self._drift(h, seen)).any():
            return self._share(change, drift)
        if not steps.any():
            return torch.zeros_like(self.moved)
        now = steps.square().mean(0)
        moved = self.moved.where(self.moved > 0, now).lerp(now, min(1.0, len(steps) / _RECENT))
        change.journal.write(self.moved, ..., moved)
        # No further than the batch itself makes likely: a pass at rest ends all leaning.
        return self._share(change, torch.minimum(moved.sqrt(), 10 * now.sqrt()))

    def _share(self, change: Change, delta: Tensor) -> Tensor:
        """(T,), the share of recent samples in the gradient if scores are off by delta."""
        size = self.pairs.term.size(torch.stack([torch.zeros_like(delta), delta]))
        excess = self.steepness * (size[1] - size[0])
        return (1 - len(change.index) / change.count) * (1 - 1 / excess.clamp(min=1))

    def _drift(self, h: Tensor, seen: Tensor) -> Tensor:
        """(T,), how far recent scores lie from earlier ones, where chance does not explain it.

        Samples come in random order, so that a difference shows that the model has moved.
        """
        table, total = h.view(self.pairs.anchor.shape).double(), torch.zeros_like(self.moved)
        for roles, cells in zip((self.pairs.anchor, self.pairs.partner), self.recent, strict=True):
            samples = cells.T.clamp(min=0) // roles.shape[1]
            earlier = (roles & seen.unsqueeze(1)).scatter(0, samples, False)
            count = earlier.sum(0)
            enough = (cells >= 0).all(1) & (count >= _RECENT)
            if enough.any():
                weight = earlier / count.clamp(min=1)
                mean = (table * weight).sum(0)
                spread = ((table - mean).square() * weight).sum(0).sqrt()
                last = h[cells].double()
                now = last.std(1, correction=0)
                off = torch.stack([last.mean(1) - mean, now - spread])
                chance = torch.maximum(spread, now) / _RECENT**0.5
                certain = enough & (off.abs() > 6 * chance).any(0)
                total += off.square().sum(0).where(certain, 0)
        return total.sqrt()

    def _enter(self, change: Change) -> Tensor:
        """The cells of the batch and the recent ones, (2, T, B + 64); -1 where there is none."""
        cells, _ = self.pairs.cells(change.index)
        fresh = torch.stack([
            cells.where(roles[change.index], -1).T
            for roles in (self.pairs.anchor, self.pairs.partner)
        ])  # fmt: skip
        again = (self.recent.unsqueeze(3) == fresh.unsqueeze(2)).any(3)
        lines = torch.cat([fresh, self.recent.masked_fill(again, -1)], dim=2)
        first = (lines < 0).byte().argsort(dim=2, stable=True)[:, :, :_RECENT]
        change.journal.write(self.recent, ..., lines.gather(2, first))
        return lines

    def _slopes(self, size: int, cells: Tensor, h: Tensor, counts: Tensor, outer: Outer) -> Tensor:
        """(B, T): a mean over the anchors is one over recent anchors, and so for the partners."""
        anchors, partners = cells
        inside, counted = cells >= 0
        panel = Panel(anchors, inside, h[anchors].double(), h[partners].double(), counted, None)
        sums = torch.ones_like(panel.anchors).unsqueeze(2)
        rows = Rows(self.pairs, panel, sums, torch.zeros_like(panel.anchors))
        rows.renew(*inside.nonzero().unbind(1))
        number = counted.sum(1, keepdim=True)
        both = (inside.any(1) & counted.any(1) & (counts > 0).all(0)).unsqueeze(1)
        with torch.enable_grad():
            leaf = rows.sums.where((inside & both).unsqueeze(2), 1.0).requires_grad_()
            costs = outer(leaf, rows.scale, number.clamp(min=1))
        weights = (inside & both) / both.sum().clamp(min=1).double()
        (unit,) = torch.autograd.grad(costs, leaf, weights)
        found = torch.zeros_like(panel.anchors[:, :size])
        # Of N/B dF/dh the table has 1/m for an anchor and 1/n for a partner.
        line, column = inside[:, :size].nonzero().unbind(1)
        own = rows.anchor_slopes(unit, line, column)
        found[line, column] = own / counts[0, line]
        line, column = counted[:, :size].nonzero().unbind(1)
        scores = panel.partners[line, column]
        pushed = rows.partner_slopes(unit, line, scores, scores)
        share = number[line, 0] / (inside.sum(1)[line].clamp(min=1) * counts[1, line])
        found[line, column] += pushed * share
        return found.T
