"""Pairs of an anchor and a partner: which there are, what each adds, and sums over all of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fcco.objectives.structure import Structure
from fcco.objectives.surrogates import Surrogate

__all__ = ["TINY", "Cost", "Pairs", "Panel", "Term", "lines_of", "parts_of"]

PAIRS = 1 << 18
"""Pairs that are formed at once."""
TINY = -600.0
"""The log-scale of a sum that has no term."""

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
        s, counts, weights = self.to_partners(panel, line, scores)
        scale = torch.zeros_like(scores.detach())
        if self.term.temperature is not None:  # exponentials, which would overflow
            size = self.term.log(s.detach())
            scale = (size if counts is None else size.where(counts, -torch.inf)).amax(1)
            scale = scale.clamp(min=TINY)
        terms = self.term(s, scale.unsqueeze(1), counts)
        terms = terms if weights is None else terms * weights
        sums = self.total(panel, line, terms)
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
            for some in parts_of(len(line), width, h.device):
                inputs = flat, groups, line[some], column[some]
                if many and flat.requires_grad:
                    total = total + checkpoint(part, *inputs, use_reentrant=False)
                else:
                    total = total + part(*inputs)
        return total

    def to_partners(
        self, panel: Panel, line: Tensor, scores: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Differences of all partners of a line and an anchor there, (k, P), counts, weights."""
        s = self.sign * (lines_of(panel.partners, line) - scores.unsqueeze(1))
        counts = None if panel.counts is None else lines_of(panel.counts, line)
        weights = None if panel.weights is None else lines_of(panel.weights, line)
        return s, counts, weights

    def to_anchors(
        self, panel: Panel, line: Tensor, scores: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Differences of a partner with this score and all anchors of its line, (k, A)."""
        s = self.sign * (scores.unsqueeze(1) - lines_of(panel.anchors, line))
        whole = len(panel.inside) == 1
        return s, None if whole else lines_of(panel.inside, line)

    def total(self, panel: Panel, line: Tensor, terms: Tensor) -> Tensor:
        """Sums of (k, P) terms over the partners of their lines, and over the marked ones."""
        if panel.marked is None:
            return terms.sum(1, keepdim=True)
        if len(panel.marked) == 1:
            return terms @ torch.stack([torch.ones_like(panel.marked[0]), panel.marked[0]], dim=1)
        return torch.stack([terms.sum(1), (terms * panel.marked[line]).sum(1)], dim=1)


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


def lines_of(lines: Tensor, line: Tensor) -> Tensor:
    """``lines[line]``, without a copy if there is one line alone."""
    return lines.expand(len(line), *lines.shape[1:]) if len(lines) == 1 else lines[line]


def parts_of(count: int, width: int, device: torch.device) -> Iterator[Tensor]:
    """Positions 0..count-1 in parts that can each be paired with ``width`` others at once."""
    if count:
        yield from torch.arange(count, device=device).split(max(1, PAIRS // max(width, 1)))
