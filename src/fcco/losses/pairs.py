"""Which cells of a table are compared with which, and what a pair of them adds."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from fcco.losses.groups import Groups
from fcco.losses.terms import Term

__all__ = ["PAIRS", "TINY", "Pairs", "Panel", "of_groups"]

PAIRS = 1 << 18
"""Pairs that are formed at once."""
TINY = -600.0
"""The scale of a sum that has no term."""


@dataclass(frozen=True)
class Panel:
    """The anchors and partners of some groups side by side, one group per line."""

    rows: Tensor
    """(g, A), of the anchors."""
    inside: Tensor
    """(g, A), where there is an anchor; the others repeat one."""
    anchors: Tensor
    """(g, A), their scores."""
    partners: Tensor
    """(g, P), the partners' scores."""
    counts: Tensor | None
    """(g, P), which of them count; None: all."""
    marked: Tensor | None
    """(g, P), which are marked; None: none are."""

    @cached_property
    def full(self) -> bool:
        """Whether all lines have equally many anchors."""
        return bool(self.inside.all())


class Pairs(nn.Module):
    """Anchors i, in rows, and the partners j of their group.

        u_i = own + sum_{j != i} term(+-(h_j - h_i)),

    once over all partners and, where some are marked, once over these. A cell is a sample's score
    for one task; h is the flattened table.

    Args:
        anchor: (N, T), which cells are anchors.
        partner: (N, T), which are partners; all anchors are, if ``own`` is not 0.
        owner: (N, 1) or (1, T), the group of a cell: its list, or its task.
        num_groups: G.
        term: what a pair adds.
        sign: 1 for term(h_j - h_i), -1 for term(h_i - h_j).
        own: what an anchor adds to its own sum.
        marked: (N, T), partners that a second sum counts; all anchors are.
    """

    owner: Tensor
    anchor: Tensor
    partner: Tensor
    marked: Tensor | None
    group: Tensor
    """(m,), of each row."""
    keys: Tensor
    """(m,), group * cells + cell of each row, rising."""
    sizes: Tensor
    """(2, G), anchors and partners of each group."""

    def __init__(
        self,
        anchor: Tensor,
        partner: Tensor,
        owner: Tensor,
        num_groups: int,
        *,
        term: Term,
        sign: float = 1.0,
        own: float = 0.0,
        marked: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.term, self.sign, self.own_partner = term, sign, own != 0
        # A sum over all partners holds the anchor's own term(0), which is put right once.
        zero = torch.zeros((), dtype=torch.float64)
        self.own = own - float(term(zero, zero, None)) if own else 0.0
        whose = owner.expand(anchor.shape).flatten()
        self.anchors = Groups.of(whose.where(anchor.flatten(), -1), num_groups)
        self.partners = Groups.of(whose.where(partner.flatten(), -1), num_groups)
        group = self.anchors.owner()
        structure = {
            "owner": owner,
            "anchor": anchor,
            "partner": partner,
            "marked": marked,
            "group": group,
            "keys": group * anchor.numel() + self.anchors.cells,
            "sizes": torch.stack([self.anchors.starts.diff(), self.partners.starts.diff()]),
        }
        for name, tensor in structure.items():
            self.register_buffer(name, tensor, persistent=False)

    def cells(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """The cells of some samples and their groups, both (B, T)."""
        tasks = self.anchor.shape[1]
        cells = samples.unsqueeze(1) * tasks + torch.arange(tasks, device=samples.device)
        return cells, self.owner.expand(self.anchor.shape)[samples]

    def mean_weights(self, counts: Tensor) -> Tensor:
        """c_i of a mean over the anchors of a group, and over groups with two kinds of members.

        Args:
            counts: (2, G), anchors and partners of each group.
        """
        anchors, partners = counts.unbind()
        both = (anchors > 0) & (partners > (anchors if self.own_partner else 0))
        each = both / (anchors.clamp(min=1) * both.sum().clamp(min=1)).double()
        return each[self.group]

    def columns(self, groups: Tensor, cells: Tensor) -> Tensor:
        """Where some anchors are in the lines of their groups."""
        rows = torch.searchsorted(self.keys, groups * self.anchor.numel() + cells)
        return rows - self.anchors.starts[groups]

    def split(self, groups: Tensor) -> Iterator[Tensor]:
        """Groups of which a panel can be formed at once."""
        if len(groups):
            width = max(int(self.sizes[:, groups].max()), 1)
            yield from groups.split(max(1, PAIRS // width))

    def panel(self, groups: Tensor, h: Tensor, seen: Tensor | None) -> Panel:
        """Of these groups; ``seen`` tells which samples count, None: all do."""
        rows, inside = self.anchors.places(groups)
        places, counts = self.partners.places(groups)
        partners = self.partners.cells[places]
        if seen is not None:
            counts = counts & seen[partners // self.anchor.shape[1]]
        return Panel(
            rows,
            inside,
            h[self.anchors.cells[rows]].double(),
            h[partners].double(),
            None if bool(counts.all()) else counts,
            None if self.marked is None else self.marked.view(-1)[partners].double(),
        )

    def of_anchors(
        self, panel: Panel, line: Tensor, scores: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Differences of all partners of a line and an anchor there with this score, (k, P).

        And which of them count; None: all.
        """
        s = self.sign * (of_groups(panel.partners, line) - scores.unsqueeze(1))
        return s, None if panel.counts is None else of_groups(panel.counts, line)

    def of_partners(
        self, panel: Panel, line: Tensor, scores: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Differences of a partner with this score and all anchors of its line, (k, A)."""
        s = self.sign * (scores.unsqueeze(1) - of_groups(panel.anchors, line))
        return s, None if panel.full else of_groups(panel.inside, line)

    def sum(self, panel: Panel, line: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """u of anchors with these scores on some lines of a panel.

        As (k, 1) or (k, 2), over exp(scale), (k,), such that the first is about 1.
        """
        s, counts = self.of_anchors(panel, line, scores)
        with torch.no_grad():
            size = self.term.size(s)
            scale = (size if counts is None else size.where(counts, -torch.inf)).amax(1)
            scale = scale.clamp(min=TINY)
        sums = self.total(panel, line, self.term(s, scale.unsqueeze(1), counts))
        sums = sums + self.own * (-scale).exp().unsqueeze(1)
        log_sum = (scale + sums.detach()[:, 0].log()).clamp(min=TINY)
        return sums * (scale - log_sum).exp().unsqueeze(1), log_sum

    def total(self, panel: Panel, line: Tensor, terms: Tensor) -> Tensor:
        """Sums of (k, P) terms over the partners of their lines, and over the marked ones."""
        if panel.marked is None:
            return terms.sum(1, keepdim=True)
        if len(panel.marked) == 1:
            return terms @ torch.stack([torch.ones_like(panel.marked[0]), panel.marked[0]], dim=1)
        return torch.stack([terms.sum(1), (terms * panel.marked[line]).sum(1)], dim=1)


def of_groups(lines: Tensor, line: Tensor) -> Tensor:
    """``lines[line]``, without a copy if there is one line alone.

    Examples:
        >>> of_groups(torch.tensor([[1, 2]]), torch.tensor([0, 0]))
        tensor([[1, 2],
                [1, 2]])
    """
    return lines.expand(len(line), *lines.shape[1:]) if len(lines) == 1 else lines[line]
