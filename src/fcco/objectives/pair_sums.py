"""Running sums over all pairs of a table, updated by what a batch changes in them."""

from typing import Any

import torch
from torch import Tensor

from fcco.objectives.pairs import TINY, Pairs, Panel, lines_of, parts_of
from fcco.objectives.running import Change, RunningSums, Update

__all__ = ["PairSums"]

_LOST = 2.0**-20
"""A sum that fell to this fraction of its former size has lost 20 of its 53 bits."""
_GONE = 2.0**-50
"""A sum that fell to this fraction of its former size has lost all its digits."""


class PairSums(RunningSums):
    """The sum u of every anchor over its pairs, kept as ``sums * exp(scale)``.

    A step does two things. For a changed partner, it adds the change of its terms to all rows of
    the partner's group. For a changed anchor, it recomputes the row from all its pairs. This takes
    O(B (m + N)) time instead of O(m N).

    Adding differences loses digits. The scale follows the largest value that a sum has had since it
    was last recomputed, so the size of ``sums`` shows how many digits are lost. A row that has lost
    20 of 53 bits, because a dominant exponential was removed, is recomputed from all its pairs. The
    row of an anchor has no meaning until the anchor is seen, which computes it.

    Args:
        objective: the objective whose ``_pairs``, ``_cost`` and ``_row_weights`` are used.
    """

    objective: Any
    sums: Tensor
    """(m, 1) or (m, 2), sums over all partners and over the marked ones, divided by exp(scale)."""
    scale: Tensor
    """(m,), the log-scale of each row."""
    costs: Tensor
    """(m,), f_i(u_i) of each row."""

    def __init__(self, objective: Any) -> None:
        super().__init__(objective)
        self.pairs: Pairs = objective._pairs
        rows = self.pairs.num_rows
        columns = 1 if self.pairs.structure.on(torch.device("cpu")).marked is None else 2
        self.register_buffer("sums", torch.ones(rows, columns, dtype=torch.float64))
        self.register_buffer("scale", torch.zeros(rows, dtype=torch.float64))
        self.register_buffer("costs", torch.zeros(rows, dtype=torch.float64))

    def prepare(self, scores: Tensor, seen: Tensor) -> None:
        """Recompute all rows if the scores of the table were rounded since they were formed."""
        if not self.invalid:
            return
        device = scores.device
        for groups in self.pairs.split(torch.arange(self.pairs.num_groups, device=device)):
            panel = self.pairs.panel(groups, scores.flatten(), seen)
            rows = _Rows(self.pairs, panel, self.sums[panel.rows], self.scale[panel.rows])
            sample = self.pairs.structure.on(device).anchors[panel.rows] // self.pairs.num_tasks
            inside = panel.inside & seen[sample]
            rows.renew(*inside.nonzero().unbind(1))
            self.sums[panel.rows[inside]] = rows.sums[inside]
            self.scale[panel.rows[inside]] = rows.scale[inside]
            partners = self._partners(seen)[groups].unsqueeze(1)
            costs = self.objective._cost(rows.sums.clamp(min=_GONE), rows.scale, partners)
            self.costs[panel.rows[inside]] = costs[inside]
        self.invalid = False

    def _partners(self, seen: Tensor | None) -> Tensor:
        """Return how many partners of each group have a score, (G,); at least 1."""
        device = self.sums.device if seen is None else seen.device
        s = self.pairs.structure.on(device)
        counts: Tensor = s.sizes[1]
        if seen is not None:
            here = seen[s.partners // self.pairs.num_tasks].to(counts.dtype)
            counts = torch.zeros_like(counts).index_add(0, s.owner[s.partners], here)
        return counts.clamp(min=1).double()

    def update(self, change: Change) -> Update | None:
        """Return F, its slopes, and the rows to write for the groups of the batch."""
        if self.invalid:
            return None
        objective: Any = self.objective
        device = change.scores.device
        pairs, s = self.pairs, self.pairs.structure.on(device)
        tasks = pairs.num_tasks
        # A cell is one score of the flattened table. Of each cell of the batch: whether it is an
        # anchor, whether it is a partner, and to which group it belongs.
        cells = change.index.unsqueeze(1) * tasks + torch.arange(tasks, device=change.index.device)
        anchor, partner, owner = s.row[cells] >= 0, s.is_partner[cells], s.owner[cells]
        known = change.known[change.index].unsqueeze(1).expand(cells.shape)
        seen = None if change.all_seen else change.seen
        weights = objective._row_weights(None if seen is None else seen.double()).to(device)
        partners = self._partners(seen)
        # h holds the new scores already, while ``old`` are those that the sums were formed with.
        h, old = change.table.flatten(), change.remembered[change.index].double()
        slope = torch.zeros_like(old)
        costs = self.costs.clone()
        places, sums, scales = [], [], []
        for some in pairs.split(owner[anchor | partner].unique()):
            panel = pairs.panel(some, h, seen)
            rows = _Rows(pairs, panel, self.sums[panel.rows], self.scale[panel.rows])
            # The line of a cell within this panel. A cell of another group finds a wrong line,
            # which the comparison with ``owner`` masks.
            line = torch.searchsorted(some, owner).clamp(max=len(some) - 1)
            own, other = (members & (some[line] == owner) for members in (anchor, partner))
            column = s.row[cells[own]] - s.anchor_starts[owner[own]]
            place = line[own], column
            marked = known if s.marked is None else s.marked[cells]
            new = h[cells[other]].double()
            # First update all rows for the changed partners. Then recompute the rows of changed
            # anchors, whose sums were formed with another score of the anchor itself.
            rows.move(line[other], new, old[other], known[other], marked[other])
            rows.renew(*place)
            rows.renew(*rows.lost(weights[panel.rows] > 0))
            with torch.enable_grad():
                leaf = rows.sums.clamp(min=_GONE).requires_grad_(change.slopes)
                found = objective._cost(leaf, rows.scale, partners[some].unsqueeze(1))
            inside = panel.inside
            costs[panel.rows[inside]] = found.detach()[inside]
            places.append(panel.rows[inside])
            sums.append(rows.sums[inside])
            scales.append(rows.scale[inside])
            if change.slopes:
                (unit,) = torch.autograd.grad(found, leaf, weights[panel.rows] * inside)
                slope[other] = rows.partner_slopes(unit, line[other], new, marked[other])
                slope[own] += rows.anchor_slopes(unit, *place)
        value = (weights * costs).sum()
        if not places:
            return Update(value, slope if change.slopes else None)
        where = torch.cat(places)
        writes = {
            "sums": (where, torch.cat(sums)),
            "scale": (where, torch.cat(scales)),
            "costs": (where, costs[where]),
        }
        return Update(value, slope if change.slopes else None, writes)


class _Rows:
    """The sums of all anchors of a panel, of shape (g, A, 1 or 2), and their log-scales (g, A)."""

    def __init__(self, pairs: Pairs, panel: Panel, sums: Tensor, scale: Tensor) -> None:
        self.pairs, self.panel = pairs, panel
        self.sums, self.scale = sums, scale

    def move(self, line: Tensor, new: Tensor, old: Tensor, known: Tensor, marked: Tensor) -> None:
        """Add term(new) - term(old) of changed partners to all anchors of their lines.

        Args:
            line: (k,), the line of each partner in the panel.
            new: (k,), the new scores.
            old: (k,), the old scores.
            known: (k,), whether a partner has an old score.
            marked: (k,), whether a partner is in the second range.
        """
        term = self.pairs.term
        for some in parts_of(len(line), self.panel.anchors.shape[1], line.device):
            here = line[some]
            after, counts = self.pairs.to_anchors(self.panel, here, new[some])
            before, _ = self.pairs.to_anchors(self.panel, here, old[some])
            # Raise the scale to the largest new term, so that no term overflows.
            scale = self._raised(here, term.log(after))
            terms = term(after, lines_of(scale, here), counts)
            if bool(known[some].any()):
                had = known[some].unsqueeze(1).expand(terms.shape)
                had = had if counts is None else had & counts
                terms = terms - term(before, lines_of(scale, here), had)
            parts = [terms]
            if self.sums.shape[2] > 1:
                parts.append(terms * marked[some].unsqueeze(1))
            added = torch.stack([self._by_line(here, part) for part in parts], dim=2)
            sums = self.sums * (self.scale - scale).exp().unsqueeze(2) + added
            # Put a sum above 1 into the scale. A sum below 1 stays, because its size shows how many
            # digits were lost since the row was recomputed.
            grown = sums[:, :, :1].clamp(min=1)
            self.sums, self.scale = sums / grown, scale + grown.log().squeeze(2)

    def renew(self, line: Tensor, column: Tensor) -> None:
        """Recompute some rows from all their pairs."""
        for some in parts_of(len(line), self.panel.partners.shape[1], line.device):
            place = line[some], column[some]
            sums, scale = self.pairs.form(self.panel, place[0], self.panel.anchors[place])
            self.sums[place], self.scale[place] = sums, scale

    def lost(self, counted: Tensor) -> tuple[Tensor, Tensor]:
        """Return lines and columns of the counted rows that have lost too many digits."""
        lost = (self.sums[:, :, 0] < _LOST) & (self.scale > TINY) & counted & self.panel.inside
        line, column = lost.nonzero().unbind(1)
        return line, column

    def partner_slopes(
        self, slopes: Tensor, line: Tensor, scores: Tensor, marked: Tensor
    ) -> Tensor:
        """Return dF/dh_k = sum_i dF/du_i term', over the anchors i of the line of partner k.

        Args:
            slopes: (g, A, 1) or (g, A, 2), the derivatives dF/dsums.
            line: (k,), the line of each partner in the panel.
            scores: (k,), the scores of the partners.
            marked: (k,), whether a partner is in the second range.
        """
        found = torch.zeros_like(scores)
        for some in parts_of(len(line), self.panel.anchors.shape[1], line.device):
            here = line[some]
            weights = lines_of(slopes[:, :, 0], here)
            if slopes.shape[2] > 1:
                weights = weights + lines_of(slopes[:, :, 1], here) * marked[some].unsqueeze(1)
            with torch.enable_grad():
                own = scores[some].requires_grad_()
                s, counts = self.pairs.to_anchors(self.panel, here, own)
                terms = self.pairs.term(s, lines_of(self.scale, here), counts)
            (found[some],) = torch.autograd.grad(terms, own, weights)
        return found

    def anchor_slopes(self, slopes: Tensor, line: Tensor, column: Tensor) -> Tensor:
        """Return dF/dh_i = dF/du_i du_i/dh_i, over the partners of the line of anchor i."""
        found = slopes.new_zeros(len(line))
        for some in parts_of(len(line), self.panel.partners.shape[1], line.device):
            place = line[some], column[some]
            with torch.enable_grad():
                own = self.panel.anchors[place].requires_grad_()
                s, counts, _ = self.pairs.to_partners(self.panel, place[0], own)
                terms = self.pairs.term(s, self.scale[place].unsqueeze(1), counts)
                sums = self.pairs.total(self.panel, place[0], terms)
            (found[some],) = torch.autograd.grad(sums, own, slopes[place])
        return found

    def _raised(self, line: Tensor, size: Tensor) -> Tensor:
        """Return the larger of the scale and the logarithms of the new terms."""
        if len(self.scale) == 1:
            return torch.maximum(self.scale, size.amax(0, keepdim=True))
        return self.scale.scatter_reduce(0, line.unsqueeze(1).expand(size.shape), size, "amax")

    def _by_line(self, line: Tensor, terms: Tensor) -> Tensor:
        if len(self.scale) == 1:
            return terms.sum(0, keepdim=True)
        return torch.zeros_like(self.scale).index_add(0, line, terms)
