"""Which cells of a table are compared with which, and what a pair of them adds."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from fcco.losses.groups import Groups
from fcco.losses.terms import Term

__all__ = ["PAIRS", "TINY", "Pairs"]

PAIRS = 1 << 20
"""Pairs that are formed at once."""
TINY = -600.0
"""The scale of a sum that has no term."""


class Pairs(nn.Module):
    """Anchors i, in rows, and the partners j of their group.

        u_i = own + sum_{j != i} term(+-(h_j - h_i)),

    once over all partners and, where some are marked, once over these. A cell is a sample's score
    for one task; h is the flattened table.

    Args:
        anchor: (N, T), which cells are anchors.
        partner: (N, T), which are partners.
        owner: (N, 1) or (1, T), the group of a cell: its list, or its task.
        num_groups: G.
        term: what a pair adds.
        sign: 1 for term(h_j - h_i), -1 for term(h_i - h_j).
        own: what an anchor adds to its own sum.
        marked: (N, T), partners that a second sum counts.
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
        self.term, self.sign, self.own = term, sign, own
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

    def rows(self, groups: Tensor, cells: Tensor) -> Tensor:
        """The rows of some anchors."""
        return torch.searchsorted(self.keys, groups * self.anchor.numel() + cells)

    def split(self, groups: Tensor, side: int) -> Iterator[Tensor]:
        """Positions in ``groups`` whose pairs with all anchors (0) or partners (1) fit at once."""
        if len(groups):
            width = int(self.sizes[side, groups].max())
            yield from torch.arange(len(groups), device=groups.device).split(
                max(1, PAIRS // max(width, 1))
            )

    def of_anchors(
        self, rows: Tensor, scores: Tensor, h: Tensor, seen: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Differences between anchors with these scores and their partners, (r, width): which of
        them count, and which are marked."""
        places, counts = self.partners.places(self.group[rows])
        partners = self.partners.cells[places]
        counts = counts & seen[partners // self.anchor.shape[1]]
        if self.own:
            counts = counts & (partners != self.anchors.cells[rows].unsqueeze(1))
        marked = None if self.marked is None else self.marked.flatten()[partners]
        return self.sign * (h[partners] - scores.unsqueeze(1)), counts, marked

    def sum(self, rows: Tensor, h: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """u_i of some rows, (r, 1) or (r, 2), over exp(scale), (r,), so that the first is 1."""
        s, counts, marked = self.of_anchors(rows, h[self.anchors.cells[rows]], h, seen)
        with torch.no_grad():
            scale = self.term.size(s).where(counts, -torch.inf).amax(1)
            scale = scale.clamp(min=0.0 if self.own else TINY)
        terms = self.term(s, scale.unsqueeze(1), counts)
        parts = [terms] if marked is None else [terms, terms * marked]
        sums = torch.stack([part.sum(1) for part in parts], dim=1)
        sums = sums + self.own * (-scale).exp().unsqueeze(1)
        total = sums.detach()[:, :1]
        total = total.where(total > 0, 1)
        return sums / total, scale + total.log().squeeze(1)
