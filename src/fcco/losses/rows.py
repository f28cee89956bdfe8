"""The sums of a panel's anchors: moved by what changes in their pairs, or summed from them."""

from collections.abc import Iterator

import torch
from torch import Tensor

from fcco.losses.pairs import PAIRS, TINY, Pairs, Panel, of_groups

__all__ = ["Rows", "parts_of"]

_LOST = 2.0**-20
"""A sum this small beside what it was has lost 20 of its 53 bits."""
_REPAIRED = 1 << 20
"""Pairs that a step may always spend on such sums."""


class Rows:
    """u of all anchors of a panel, as ``sums * exp(scale)``.

    The scale follows the largest value that a sum had since it was formed from its pairs: how small
    ``sums`` is shows the digits that it has lost by differences.

    Args:
        pairs: what a pair adds.
        panel: the scores, new ones included.
        sums: (g, A, 1) or (g, A, 2), as they were.
        scale: (g, A).
    """

    def __init__(self, pairs: Pairs, panel: Panel, sums: Tensor, scale: Tensor) -> None:
        self.pairs, self.panel = pairs, panel
        self.sums, self.scale = sums, scale

    def move(self, line: Tensor, new: Tensor, old: Tensor, known: Tensor, marked: Tensor) -> None:
        """u_i += term(new) - term(old) for changed partners and all anchors of their lines.

        Args:
            line: (k,), in the panel.
            new: (k,), scores.
            old: (k,).
            known: (k,), whether the old one is known.
            marked: (k,), whether a partner is marked.
        """
        term = self.pairs.term
        for some in parts_of(len(line), self.panel.anchors):
            here = line[some]
            after, counts = self.pairs.of_partners(self.panel, here, new[some])
            before, _ = self.pairs.of_partners(self.panel, here, old[some])
            scale = self._scale(here, term.size(after))
            terms = term(after, of_groups(scale, here), counts)
            if bool(known[some].any()):
                had = known[some].unsqueeze(1).expand(terms.shape)
                had = had if counts is None else had & counts
                terms = terms - term(before, of_groups(scale, here), had)
            parts = [terms]
            if self.sums.shape[2] > 1:
                parts.append(terms * marked[some].unsqueeze(1))
            added = torch.stack([self._by_line(here, part) for part in parts], dim=2)
            sums = self.sums * (self.scale - scale).exp().unsqueeze(2) + added
            grown = sums[:, :, :1].clamp(min=1)
            self.sums, self.scale = sums / grown, scale + grown.log().squeeze(2)

    def renew(self, line: Tensor, column: Tensor) -> None:
        """Sum some rows from their pairs."""
        for some in parts_of(len(line), self.panel.partners):
            place = line[some], column[some]
            sums, scale = self.pairs.sum(self.panel, place[0], self.panel.anchors[place])
            self.sums[place], self.scale[place] = sums, scale

    def lost(self, counted: Tensor, limit: int) -> tuple[Tensor, Tensor]:
        """Lines and columns of the counted rows that have lost too many digits.

        The worst ones, at most ``limit`` or as many as have a million pairs.
        """
        lost = (self.sums[:, :, 0] < _LOST) & (self.scale > TINY) & counted & self.panel.inside
        line, column = lost.nonzero().unbind(1)
        limit = max(limit, _REPAIRED // self.panel.partners.shape[1])
        if len(line) > limit:
            worst = self.sums[line, column, 0].argsort()[:limit]
            line, column = line[worst], column[worst]
        return line, column

    def partner_slopes(
        self, slopes: Tensor, line: Tensor, scores: Tensor, marked: Tensor
    ) -> Tensor:
        """dF/dh_k = sum_i dF/du_i term' over the anchors i of k's line.

        Args:
            slopes: (g, A, 1) or (g, A, 2), dF/dsums.
            line: (k,), in the panel.
            scores: (k,).
            marked: (k,), whether a partner is marked.
        """
        found = torch.zeros_like(scores)
        for some in parts_of(len(line), self.panel.anchors):
            here = line[some]
            weights = of_groups(slopes[:, :, 0], here)
            if slopes.shape[2] > 1:
                weights = weights + of_groups(slopes[:, :, 1], here) * marked[some].unsqueeze(1)
            with torch.enable_grad():
                own = scores[some].requires_grad_()
                s, counts = self.pairs.of_partners(self.panel, here, own)
                terms = self.pairs.term(s, of_groups(self.scale, here), counts)
            (found[some],) = torch.autograd.grad(terms, own, weights)
        return found

    def anchor_slopes(self, slopes: Tensor, line: Tensor, column: Tensor) -> Tensor:
        """dF/dh_i = dF/du_i du_i/dh_i over the partners of i's line."""
        found = slopes.new_zeros(len(line))
        for some in parts_of(len(line), self.panel.partners):
            place = line[some], column[some]
            with torch.enable_grad():
                own = self.panel.anchors[place].requires_grad_()
                s, counts = self.pairs.of_anchors(self.panel, place[0], own)
                terms = self.pairs.term(s, self.scale[place].unsqueeze(1), counts)
                sums = self.pairs.total(self.panel, place[0], terms)
            (found[some],) = torch.autograd.grad(sums, own, slopes[place])
        return found

    def _scale(self, line: Tensor, size: Tensor) -> Tensor:
        """The largest of the scale and the sizes of new terms."""
        if len(self.scale) == 1:
            return torch.maximum(self.scale, size.amax(0, keepdim=True))
        return self.scale.scatter_reduce(0, line.unsqueeze(1).expand(size.shape), size, "amax")

    def _by_line(self, line: Tensor, terms: Tensor) -> Tensor:
        if len(self.scale) == 1:
            return terms.sum(0, keepdim=True)
        return torch.zeros_like(self.scale).index_add(0, line, terms)


def parts_of(count: int, lines: Tensor) -> Iterator[Tensor]:
    """Positions 0..count-1 in parts that can each be paired with a whole line at once.

    Examples:
        >>> [len(part) for part in parts_of(3, torch.zeros(1, 2**17))]
        [2, 1]
    """
    if count:
        size = max(1, PAIRS // max(lines.shape[1], 1))
        yield from torch.arange(count, device=lines.device).split(size)
