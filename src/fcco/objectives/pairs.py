"""Pairs of an anchor and a partner: which pairs there are, and sums of terms over them."""

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
"""Number of pairs that are formed at once."""
TINY = -600.0
"""Log-scale of a sum that has no term."""

Cost = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A function that returns f_i. Its arguments are the sums (..., 1 or 2) divided by exp(log-scale),
the log-scale, and the number of partners of i."""


@dataclass(frozen=True)
class Term:
    """The term that a pair adds to a sum: l(s), or exp(l(s) / temperature).

    Here s is a difference of two scores. Without a temperature, the term is l(s).

    Examples:
        >>> from fcco.objectives import SquaredHinge
        >>> term, s = Term(SquaredHinge(), 0.25**6), torch.tensor([1.0])
        >>> term.log(s), term(s, torch.tensor(16384.0), None)
        (tensor([16384.]), tensor([1.]))
    """

    surrogate: Surrogate
    temperature: float | None = None

    def log(self, s: Tensor) -> Tensor:
        """Return the logarithm of the term."""
        cost = self.surrogate(s)
        return cost.log() if self.temperature is None else cost / self.temperature

    def __call__(self, s: Tensor, scale: Tensor, counts: Tensor | None) -> Tensor:
        """Return the term divided by exp(scale), 0 where ``counts`` is false."""
        if self.temperature is None:
            terms = self.surrogate(s) * (-scale).exp()
            return terms if counts is None else terms.where(counts, 0)
        # Mask before exp, not after it: the slope of a masked overflow would be NaN.
        exponents = self.surrogate(s) / self.temperature - scale
        return (exponents if counts is None else exponents.where(counts, -torch.inf)).exp()


@dataclass(frozen=True)
class Panel:
    """The anchors and partners of some groups, with one group per line, padded to equal length."""

    rows: Tensor
    """(g, A), the blocks of the anchors."""
    inside: Tensor
    """(g, A), whether a place holds an anchor; the padding repeats one."""
    anchors: Tensor
    """(g, A), the scores of the anchors."""
    partners: Tensor
    """(g, P), the scores of the partners."""
    counts: Tensor | None
    """(g, P), whether a partner counts, or None if all do."""
    marked: Tensor | None
    """(g, P), 1 for a partner in the second range, else 0; None without a second range."""
    weights: Tensor | None = None
    """(g, P), how much each partner counts, or None if all count alike."""


class Pairs:
    """Sums over the pairs of each anchor i with the partners j of its group.

        u_i = own + sum_{j != i} term(+-(h_j - h_i)).

    A group is a task or a list. The sum is over all partners. If some partners are marked, a second
    sum is over the marked ones.

    The scores h are a flattened table (N, T). A *cell* of it, sample * T + task, is the score of
    one sample for one task.

    Args:
        anchor: (N, T), which cells are anchors. Block i is the i-th of them, group by group.
        partner: (N, T), which cells are partners. If ``own_pair``, these include all anchors.
        owner: (N, T), the group of each cell, which is its list or its task.
        num_groups: G, the number of groups.
        term: the term that a pair adds.
        sign: 1 for term(h_j - h_i), -1 for term(h_i - h_j).
        own_pair: whether an anchor adds 1 to its own sums.
        marked: (N, T), the partners that the second sum counts, among them all anchors; or None.
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
        # A sum over all partners contains the anchor's own term(0). Adding ``own`` makes it 1.
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
        """Divide groups into parts whose panels can be formed at once."""
        if len(groups):
            sizes = self.structure.on(groups.device).sizes
            width = max(int(sizes[:, groups].max()), 1)
            yield from groups.split(max(1, PAIRS // width))

    def panel(
        self, groups: Tensor, h: Tensor, seen: Tensor | None, weight: Tensor | None = None
    ) -> Panel:
        """Lay out some groups side by side.

        Args:
            groups: (g,), the groups.
            h: (N T,), the flattened table of scores.
            seen: (N,), which samples count, or None if all do.
            weight: (N,), how much a sample counts as a partner, or None if all count alike.
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
        """Compute u of anchors from all their pairs.

        Args:
            panel: the groups of the anchors.
            line: (k,), the line of each anchor in the panel.
            scores: (k,), the scores of the anchors.
            own: the weight of an anchor in its own sum.

        Returns:
            The sums (k, 1) or (k, 2) divided by exp(log-scale), and the log-scale (k,). The scale
            is chosen such that the first sum is 1.
        """
        s, counts, weights = self.to_partners(panel, line, scores)
        scale = torch.zeros_like(scores.detach())
        # Exponentials would overflow, so the largest one of each row becomes its scale.
        if self.term.temperature is not None:
            size = self.term.log(s.detach())
            scale = (size if counts is None else size.where(counts, -torch.inf)).amax(1)
            scale = scale.clamp(min=TINY)
        terms = self.term(s, scale.unsqueeze(1), counts)
        terms = terms if weights is None else terms * weights
        sums = self.total(panel, line, terms)
        if self.own:
            sums = sums + self.own * (own * (-scale).exp()).unsqueeze(1)
        # Normalize to a first sum of 1: later changes of its size then show lost digits.
        log_sum = (scale + sums.detach()[:, 0].log()).clamp(min=TINY)
        return sums * (scale - log_sum).exp().unsqueeze(1), log_sum

    def value(self, h: Tensor, rows: Tensor, cost: Cost, weight: Tensor | None) -> Tensor:
        """Return sum_i rows_i f_i(u_i) of all scores, differentiable, forming some pairs at a time.

        Args:
            h: (N, T), the scores.
            rows: (m,), the weight of each block. Blocks of weight 0 are not computed.
            cost: the function f_i.
            weight: (N,), how much a sample counts as a partner, or None if all count alike.
        """
        s, flat = self.structure.on(h.device), h.flatten()
        seen = None if weight is None else weight > 0
        partners = s.sizes[1].double()
        if weight is not None:
            partners = partners.new_zeros(self.num_groups).index_add(
                0, s.owner[s.partners], weight[s.partners // self.num_tasks]
            )
        total = h.new_zeros(())
        # With many pairs, checkpointing forms them again in the backward pass instead of keeping
        # them. With few pairs they fit into memory: forming them twice would take half as long
        # again, and the first checkpoint imports torch's compiler, which takes a second.
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
        """Compare k anchors with all partners of their lines.

        Returns:
            The signed differences of scores (k, P), which partners count, and their weights.
        """
        s = self.sign * (lines_of(panel.partners, line) - scores.unsqueeze(1))
        counts = None if panel.counts is None else lines_of(panel.counts, line)
        weights = None if panel.weights is None else lines_of(panel.weights, line)
        return s, counts, weights

    def to_anchors(
        self, panel: Panel, line: Tensor, scores: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Compare k partners with all anchors of their lines.

        Returns:
            The signed differences of scores (k, A), and which anchors count.
        """
        s = self.sign * (scores.unsqueeze(1) - lines_of(panel.anchors, line))
        whole = len(panel.inside) == 1
        return s, None if whole else lines_of(panel.inside, line)

    def total(self, panel: Panel, line: Tensor, terms: Tensor) -> Tensor:
        """Return the sums of terms (k, P) over all partners, and over the marked ones."""
        if panel.marked is None:
            return terms.sum(1, keepdim=True)
        if len(panel.marked) == 1:
            # With one line, both sums are one matrix product, which is faster than two passes.
            return terms @ torch.stack([torch.ones_like(panel.marked[0]), panel.marked[0]], dim=1)
        return torch.stack([terms.sum(1), (terms * panel.marked[line]).sum(1)], dim=1)


def _grouped(owner: Tensor, members: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return cells sorted by group, and where each group begins among them, (G + 1,)."""
    cells = members.nonzero().flatten()
    cells = cells[owner[cells].argsort(stable=True)]
    sizes = torch.bincount(owner[cells], minlength=count)
    return cells, torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def _padded(starts: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places of the members of some groups, (g, width), and which of them exist.

    A shorter group is padded with its last place, or with its start if it is empty.
    """
    first, sizes = starts[groups].unsqueeze(1), (starts[groups + 1] - starts[groups]).unsqueeze(1)
    width = max(int(sizes.max()), 1) if len(groups) else 1
    place = torch.arange(width, device=starts.device).expand(len(groups), -1)
    return first + torch.minimum(place, (sizes - 1).clamp(min=0)), place < sizes


def lines_of(lines: Tensor, line: Tensor) -> Tensor:
    """Return ``lines[line]``, without a copy if there is only one line."""
    return lines.expand(len(line), *lines.shape[1:]) if len(lines) == 1 else lines[line]


def parts_of(count: int, width: int, device: torch.device) -> Iterator[Tensor]:
    """Yield the positions 0..count-1 in parts that can be paired with ``width`` others at once."""
    if count:
        yield from torch.arange(count, device=device).split(max(1, PAIRS // max(width, 1)))
