"""Sums over pairs of scores: formed from all pairs, or moved by what a batch changes in them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fcco.objectives.running import Change, RunningSums, Update
from fcco.objectives.structure import Structure
from fcco.objectives.surrogates import Surrogate

__all__ = ["Cost", "PairSums", "Pairs", "Panel", "Term"]

PAIRS = 1 << 18
"""Pairs that are formed at once."""
TINY = -600.0
"""The log-scale of a sum that has no term."""
_LOST = 2.0**-20
"""A sum this small beside what it was has lost 20 of its 53 bits."""
_GONE = 2.0**-50
"""A sum this small beside what it was has lost all its digits."""

Cost = Callable[[Tensor, Tensor, Tensor], Tensor]
"""f_i from sums (..., 1) or (..., 2) over exp(log-scale), the log-scale, and the partners of i."""


@dataclass(frozen=True)
class Term:
    """What a pair adds: l(s), or exp(l(s) / temperature), of a difference s of two scores.

    Examples:
        >>> from fcco.objectives import SquaredHinge
        >>> term, s = Term(SquaredHinge(), 0.25**6), torch.tensor([1.0])
        >>> term.log(s), term(s, torch.tensor(16384.0), None)
        (tensor([16384.]), tensor([1.]))
    """

    surrogate: Surrogate
    temperature: float | None = None

    def log(self, s: Tensor) -> Tensor:
        """The logarithm of the term."""
        cost = self.surrogate(s)
        return cost.log() if self.temperature is None else cost / self.temperature

    def __call__(self, s: Tensor, scale: Tensor, counts: Tensor | None) -> Tensor:
        """The term over exp(scale); 0 where it does not count. None: all count."""
        if self.temperature is None:
            terms = self.surrogate(s) * (-scale).exp()
            return terms if counts is None else terms.where(counts, 0)
        # Masked before exp, not after: the slope of a masked overflow would be NaN.
        exponents = self.surrogate(s) / self.temperature - scale
        return (exponents if counts is None else exponents.where(counts, -torch.inf)).exp()


@dataclass(frozen=True)
class Panel:
    """The anchors and partners of some groups side by side, one group per line."""

    rows: Tensor
    """(g, A), the blocks of the anchors."""
    inside: Tensor
    """(g, A), where there is an anchor; the other places repeat one."""
    anchors: Tensor
    """(g, A), their scores."""
    partners: Tensor
    """(g, P), the partners' scores."""
    counts: Tensor | None
    """(g, P), which of them count; None: all of them."""
    marked: Tensor | None
    """(g, P), 1 for a partner in the second range, else 0; None: there is no second range."""
    weights: Tensor | None = None
    """(g, P), how much each partner counts; None: all count alike."""


class Pairs:
    """Anchors i and the partners j of their group, a task or a list:

        u_i = own + sum_{j != i} term(+-(h_j - h_i)),

    over all partners and, where some are marked, over the marked ones.

    h is the flattened table (N, T): a *cell* of it, sample * T + task, is a score of one sample.

    Args:
        anchor: (N, T), which cells are anchors; block i is the i-th of them, group by group.
        partner: (N, T), which are partners; all anchors are, if ``own_pair``.
        owner: (N, T), the group of a cell: its list, or its task.
        num_groups: G.
        term: what a pair adds.
        sign: 1 for term(h_j - h_i), -1 for term(h_i - h_j).
        own_pair: whether an anchor adds 1 to its own sums.
        marked: (N, T), partners that a second sum counts; all anchors are.
    """

    def __init__(
        self,
        anchor: Tensor,
        partner: Tensor,
        owner: Tensor,
        num_groups: int,
        *,
        term: Term,
        sign: float = 1.0,
        own_pair: bool = False,
        marked: Tensor | None = None,
    ) -> None:
        self.term, self.sign, self.own_pair = term, sign, own_pair
        self.num_groups, self.num_tasks = num_groups, anchor.shape[1]
        # A sum over all partners holds the anchor's own term(0); this puts 1 in its place.
        zero = torch.zeros((), dtype=torch.float64)
        self.own = 1.0 - float(term(zero, zero, None)) if own_pair else 0.0
        whose = owner.flatten()
        anchors, anchor_starts = _grouped(whose, anchor.flatten(), num_groups)
        partners, partner_starts = _grouped(whose, partner.flatten(), num_groups)
        row = torch.full_like(whose, -1)
        row[anchors] = torch.arange(len(anchors))
        self.num_rows = len(anchors)
        self.structure = Structure(
            anchors=anchors,
            anchor_starts=anchor_starts,
            partners=partners,
            partner_starts=partner_starts,
            group=whose[anchors],
            owner=whose,
            row=row,
            is_partner=partner.flatten(),
            marked=None if marked is None else marked.flatten(),
            sizes=torch.stack([anchor_starts.diff(), partner_starts.diff()]),
        )

    def split(self, groups: Tensor) -> Iterator[Tensor]:
        """Divide groups into parts of which a panel can be formed at once."""
        if len(groups):
            sizes = self.structure.on(groups.device).sizes
            width = max(int(sizes[:, groups].max()), 1)
            yield from groups.split(max(1, PAIRS // width))

    def panel(
        self, groups: Tensor, h: Tensor, seen: Tensor | None, weight: Tensor | None = None
    ) -> Panel:
        """Lay out some groups.

        Args:
            groups: (g,).
            h: the flattened table.
            seen: (N,), which samples count; None: all do.
            weight: (N,), how much a sample counts as a partner; None: all count alike.
        """
        s = self.structure.on(h.device)
        rows, inside = _padded(s.anchor_starts, groups)
        places, counts = _padded(s.partner_starts, groups)
        rows = rows.clamp(max=max(self.num_rows - 1, 0))
        partners = s.partners[places.clamp(max=len(s.partners) - 1)]
        sample = partners // self.num_tasks
        if seen is not None:
            counts = counts & seen[sample]
        return Panel(
            rows,
            inside,
            h[s.anchors[rows]].double(),
            h[partners].double(),
            None if bool(counts.all()) else counts,
            None if s.marked is None else s.marked[partners].double(),
            None if weight is None else weight[sample],
        )

    def form(
        self, panel: Panel, line: Tensor, scores: Tensor, own: Any = 1.0
    ) -> tuple[Tensor, Tensor]:
        """u of anchors with these scores on some lines of a panel, from all their pairs.

        Returned as sums (k, 1) or (k, 2) over exp(log-scale), (k,), such that the first is about 1.
        ``own`` is the weight of an anchor in its own sum.
        """
        s, counts, weights = self._to_partners(panel, line, scores)
        scale = torch.zeros_like(scores.detach())
        if self.term.temperature is not None:  # exponentials, which would overflow
            size = self.term.log(s.detach())
            scale = (size if counts is None else size.where(counts, -torch.inf)).amax(1)
            scale = scale.clamp(min=TINY)
        terms = self.term(s, scale.unsqueeze(1), counts)
        terms = terms if weights is None else terms * weights
        sums = self._total(panel, line, terms)
        if self.own:
            sums = sums + self.own * (own * (-scale).exp()).unsqueeze(1)
        log_sum = (scale + sums.detach()[:, 0].log()).clamp(min=TINY)
        return sums * (scale - log_sum).exp().unsqueeze(1), log_sum

    def value(self, h: Tensor, rows: Tensor, cost: Cost, weight: Tensor | None) -> Tensor:
        """sum_i rows_i f_i(u_i) of all scores (N, T), differentiable, some pairs at a time.

        Args:
            h: (N, T).
            rows: (m,), the weight of each block; blocks of weight 0 are not formed.
            cost: f_i.
            weight: (N,), how much a sample counts as a partner, or None.
        """
        s, flat = self.structure.on(h.device), h.flatten()
        seen = None if weight is None else weight > 0
        partners = s.sizes[1].double()
        if weight is not None:
            partners = partners.new_zeros(self.num_groups).index_add(
                0, s.owner[s.partners], weight[s.partners // self.num_tasks]
            )
        total = h.new_zeros(())
        # Few pairs fit into memory together. To form them twice would take half as long again,
        # and the first use of checkpoint imports torch's compiler, which takes a second.
        many = self.num_rows * int(s.sizes[1].max()) > 4 * PAIRS

        def part(flat: Tensor, groups: Tensor, line: Tensor, column: Tensor) -> Tensor:
            panel = self.panel(groups, flat, seen, weight)
            own: Any = 1.0
            if weight is not None:
                own = weight[s.anchors[panel.rows[line, column]] // self.num_tasks]
            sums, scale = self.form(panel, line, panel.anchors[line, column], own)
            costs = cost(sums, scale, partners[groups[line]])
            return (rows[panel.rows[line, column]] * costs).sum()

        for groups in self.split(torch.arange(self.num_groups, device=h.device)):
            row, inside = _padded(s.anchor_starts, groups)
            row = row.clamp(max=max(self.num_rows - 1, 0))
            line, column = (inside & (rows[row] != 0)).nonzero().unbind(1)
            width = int(s.sizes[1, groups].max())
            for some in _parts(len(line), width, h.device):
                inputs = flat, groups, line[some], column[some]
                if many and flat.requires_grad:
                    total = total + checkpoint(part, *inputs, use_reentrant=False)
                else:
                    total = total + part(*inputs)
        return total

    def _to_partners(
        self, panel: Panel, line: Tensor, scores: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Differences of all partners of a line and an anchor there, (k, P), counts, weights."""
        s = self.sign * (_lines(panel.partners, line) - scores.unsqueeze(1))
        counts = None if panel.counts is None else _lines(panel.counts, line)
        weights = None if panel.weights is None else _lines(panel.weights, line)
        return s, counts, weights

    def _to_anchors(
        self, panel: Panel, line: Tensor, scores: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Differences of a partner with this score and all anchors of its line, (k, A)."""
        s = self.sign * (scores.unsqueeze(1) - _lines(panel.anchors, line))
        whole = len(panel.inside) == 1
        return s, None if whole else _lines(panel.inside, line)

    def _total(self, panel: Panel, line: Tensor, terms: Tensor) -> Tensor:
        """Sums of (k, P) terms over the partners of their lines, and over the marked ones."""
        if panel.marked is None:
            return terms.sum(1, keepdim=True)
        if len(panel.marked) == 1:
            return terms @ torch.stack([torch.ones_like(panel.marked[0]), panel.marked[0]], dim=1)
        return torch.stack([terms.sum(1), (terms * panel.marked[line]).sum(1)], dim=1)


class PairSums(RunningSums):
    """u of every anchor, as ``sums * exp(scale)``, moved by what a batch changes in its pairs.

    A step adds to the rows of a changed partner's group what its terms have changed, and forms the
    rows of changed anchors from their pairs: O(B (m + N)) instead of O(m N). Differences lose
    digits: the scale follows the largest value that a sum had since it was formed, so that a small
    ``sums`` shows how many. Rows that have lost 20 of 53 bits (a dominant exponential was taken
    out) are formed from all their pairs. The row of an anchor means nothing before the anchor is
    seen, which forms it.

    Args:
        objective: whose ``_pairs``, ``_cost`` and ``_row_weights`` are used.
    """

    objective: Any
    sums: Tensor
    """(m, 1) or (m, 2), over exp(scale): of all partners, and of the marked ones."""
    scale: Tensor
    """(m,)."""
    costs: Tensor
    """(m,), f_i(u_i)."""

    def __init__(self, objective: Any) -> None:
        super().__init__(objective)
        self.pairs: Pairs = objective._pairs
        rows = self.pairs.num_rows
        columns = 1 if self.pairs.structure.on(torch.device("cpu")).marked is None else 2
        self.register_buffer("sums", torch.ones(rows, columns, dtype=torch.float64))
        self.register_buffer("scale", torch.zeros(rows, dtype=torch.float64))
        self.register_buffer("costs", torch.zeros(rows, dtype=torch.float64))

    def prepare(self, scores: Tensor, seen: Tensor) -> None:
        """Form all rows anew if the scores of the table were rounded below them."""
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
        """(G,), how many partners of each group have a score; at least 1."""
        device = self.sums.device if seen is None else seen.device
        s = self.pairs.structure.on(device)
        counts: Tensor = s.sizes[1]
        if seen is not None:
            here = seen[s.partners // self.pairs.num_tasks].to(counts.dtype)
            counts = torch.zeros_like(counts).index_add(0, s.owner[s.partners], here)
        return counts.clamp(min=1).double()

    def update(self, change: Change) -> Update | None:
        """F and its slopes; rows of the groups that the batch belongs to are to be written."""
        if self.invalid:
            return None
        objective: Any = self.objective
        device = change.scores.device
        pairs, s = self.pairs, self.pairs.structure.on(device)
        tasks = pairs.num_tasks
        cells = change.index.unsqueeze(1) * tasks + torch.arange(tasks, device=change.index.device)
        anchor, partner, owner = s.row[cells] >= 0, s.is_partner[cells], s.owner[cells]
        known = change.known[change.index].unsqueeze(1).expand(cells.shape)
        seen = None if change.all_seen else change.seen
        weights = objective._row_weights(None if seen is None else seen.double()).to(device)
        partners = self._partners(seen)
        h, old = change.table.flatten(), change.remembered[change.index].double()
        slope = torch.zeros_like(old)
        costs = self.costs.clone()
        places, sums, scales = [], [], []
        for some in pairs.split(owner[anchor | partner].unique()):
            panel = pairs.panel(some, h, seen)
            rows = _Rows(pairs, panel, self.sums[panel.rows], self.scale[panel.rows])
            line = torch.searchsorted(some, owner).clamp(max=len(some) - 1)
            own, other = (members & (some[line] == owner) for members in (anchor, partner))
            column = s.row[cells[own]] - s.anchor_starts[owner[own]]
            place = line[own], column
            marked = known if s.marked is None else s.marked[cells]
            new = h[cells[other]].double()
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
    """The sums of all anchors of a panel, (g, A, 1) or (g, A, 2), and their log-scales (g, A)."""

    def __init__(self, pairs: Pairs, panel: Panel, sums: Tensor, scale: Tensor) -> None:
        self.pairs, self.panel = pairs, panel
        self.sums, self.scale = sums, scale

    def move(self, line: Tensor, new: Tensor, old: Tensor, known: Tensor, marked: Tensor) -> None:
        """u_i += term(new) - term(old) for changed partners k and all anchors of their lines.

        Args:
            line: (k,), in the panel.
            new: (k,), scores.
            old: (k,).
            known: (k,), whether there is an old one.
            marked: (k,), whether a partner is in the second range.
        """
        term = self.pairs.term
        for some in _parts(len(line), self.panel.anchors.shape[1], line.device):
            here = line[some]
            after, counts = self.pairs._to_anchors(self.panel, here, new[some])
            before, _ = self.pairs._to_anchors(self.panel, here, old[some])
            # The scale rises to the largest new term, so that no term overflows beside it.
            scale = self._raised(here, term.log(after))
            terms = term(after, _lines(scale, here), counts)
            if bool(known[some].any()):
                had = known[some].unsqueeze(1).expand(terms.shape)
                had = had if counts is None else had & counts
                terms = terms - term(before, _lines(scale, here), had)
            parts = [terms]
            if self.sums.shape[2] > 1:
                parts.append(terms * marked[some].unsqueeze(1))
            added = torch.stack([self._by_line(here, part) for part in parts], dim=2)
            sums = self.sums * (self.scale - scale).exp().unsqueeze(2) + added
            grown = sums[:, :, :1].clamp(min=1)
            self.sums, self.scale = sums / grown, scale + grown.log().squeeze(2)

    def renew(self, line: Tensor, column: Tensor) -> None:
        """Form some rows from their pairs."""
        for some in _parts(len(line), self.panel.partners.shape[1], line.device):
            place = line[some], column[some]
            sums, scale = self.pairs.form(self.panel, place[0], self.panel.anchors[place])
            self.sums[place], self.scale[place] = sums, scale

    def lost(self, counted: Tensor) -> tuple[Tensor, Tensor]:
        """Lines and columns of the counted rows that have lost too many digits."""
        lost = (self.sums[:, :, 0] < _LOST) & (self.scale > TINY) & counted & self.panel.inside
        line, column = lost.nonzero().unbind(1)
        return line, column

    def partner_slopes(
        self, slopes: Tensor, line: Tensor, scores: Tensor, marked: Tensor
    ) -> Tensor:
        """dF/dh_k = sum_i dF/du_i term' over the anchors i of the line of partner k.

        Args:
            slopes: (g, A, 1) or (g, A, 2), dF/dsums.
            line: (k,), in the panel.
            scores: (k,).
            marked: (k,), whether a partner is in the second range.
        """
        found = torch.zeros_like(scores)
        for some in _parts(len(line), self.panel.anchors.shape[1], line.device):
            here = line[some]
            weights = _lines(slopes[:, :, 0], here)
            if slopes.shape[2] > 1:
                weights = weights + _lines(slopes[:, :, 1], here) * marked[some].unsqueeze(1)
            with torch.enable_grad():
                own = scores[some].requires_grad_()
                s, counts = self.pairs._to_anchors(self.panel, here, own)
                terms = self.pairs.term(s, _lines(self.scale, here), counts)
            (found[some],) = torch.autograd.grad(terms, own, weights)
        return found

    def anchor_slopes(self, slopes: Tensor, line: Tensor, column: Tensor) -> Tensor:
        """dF/dh_i = dF/du_i du_i/dh_i over the partners of the line of anchor i."""
        found = slopes.new_zeros(len(line))
        for some in _parts(len(line), self.panel.partners.shape[1], line.device):
            place = line[some], column[some]
            with torch.enable_grad():
                own = self.panel.anchors[place].requires_grad_()
                s, counts, _ = self.pairs._to_partners(self.panel, place[0], own)
                terms = self.pairs.term(s, self.scale[place].unsqueeze(1), counts)
                sums = self.pairs._total(self.panel, place[0], terms)
            (found[some],) = torch.autograd.grad(sums, own, slopes[place])
        return found

    def _raised(self, line: Tensor, size: Tensor) -> Tensor:
        """The largest of the scale and the sizes of new terms."""
        if len(self.scale) == 1:
            return torch.maximum(self.scale, size.amax(0, keepdim=True))
        return self.scale.scatter_reduce(0, line.unsqueeze(1).expand(size.shape), size, "amax")

    def _by_line(self, line: Tensor, terms: Tensor) -> Tensor:
        if len(self.scale) == 1:
            return terms.sum(0, keepdim=True)
        return torch.zeros_like(self.scale).index_add(0, line, terms)


def _grouped(owner: Tensor, members: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Some cells sorted by group, and where each group begins among them, (G + 1,)."""
    cells = members.nonzero().flatten()
    cells = cells[owner[cells].argsort(stable=True)]
    sizes = torch.bincount(owner[cells], minlength=count)
    return cells, torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def _padded(starts: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Places of the members of some groups, (g, width), and which of them are there.

    Beyond the size of a group its last place is repeated, or its start if it has none.
    """
    first, sizes = starts[groups].unsqueeze(1), (starts[groups + 1] - starts[groups]).unsqueeze(1)
    width = max(int(sizes.max()), 1) if len(groups) else 1
    place = torch.arange(width, device=starts.device).expand(len(groups), -1)
    return first + torch.minimum(place, (sizes - 1).clamp(min=0)), place < sizes


def _lines(lines: Tensor, line: Tensor) -> Tensor:
    """``lines[line]``, without a copy if there is one line alone."""
    return lines.expand(len(line), *lines.shape[1:]) if len(lines) == 1 else lines[line]


def _parts(count: int, width: int, device: torch.device) -> Iterator[Tensor]:
    """Positions 0..count-1 in parts that can each be paired with ``width`` others at once."""
    if count:
        yield from torch.arange(count, device=device).split(max(1, PAIRS // max(width, 1)))
