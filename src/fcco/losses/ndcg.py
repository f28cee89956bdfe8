"""NDCG of the remembered scores."""

from typing import Any

import torch
from torch import Tensor

from fcco.data.arguments import structure
from fcco.losses.groups import list_weights
from fcco.losses.pair_loss import PairLoss
from fcco.losses.pairs import Pairs
from fcco.losses.table import Change
from fcco.losses.terms import Plain
from fcco.objectives.domains import check_positive
from fcco.objectives.listwise import ideal_dcg, lists_of
from fcco.objectives.surrogates import SquaredHinge, Surrogate

__all__ = ["NDCGLoss"]


class NDCGLoss(PairLoss):
    """Minus the mean over lists of NDCG (at K) with a smooth rank, as ``objectives.NDCG``.

        F = -(1/Q) sum_i (2^y_i - 1) / (Z log2(1 + r_i)),    r_i = 1 + sum_{j != i} l(h_j - h_i),

    j over the list of item i, Z the ideal DCG of the list (of its top K), Q the number of lists
    with a relevant item. At K a gain is multiplied by sigmoid((K + 1/2 - r_i) / softness).

    A sample is an item; items are numbered list after list. Lists need not come whole: a batch may
    hold one item.

    Args:
        grades: (N,), of every item; 0 is irrelevant.
        lengths: (number of lists,), adding up to N.
        top_k: K; None: the whole list.
        surrogate: l, in place of the step; ``SquaredHinge()`` if None.
        softness: width of the cut at K, in ranks.
        weights: (number of lists,), how much each list counts in the mean; None: all alike.

    Examples:
        >>> criterion = NDCGLoss(torch.tensor([0, 1, 2]), torch.tensor([2, 1]))
        >>> criterion.exact(torch.tensor([0.0, 2.0, 1.0]))  # both lists in their ideal order
        tensor(-1.)
    """

    ideal: Tensor
    """(lists,), Z of the items seen."""
    gains: Tensor
    """(N,), 2^y - 1."""
    importance: Tensor
    """(lists,), the given weights."""

    def __init__(
        self,
        grades: Any,
        lengths: Any,
        *,
        top_k: int | None = None,
        surrogate: Surrogate | None = None,
        softness: float = 0.5,
        weights: Any = None,
    ) -> None:
        check_positive(top_k=1 if top_k is None else top_k, softness=softness)
        grades = structure("grades", grades, None, kind="real")
        lengths = structure("lengths", lengths, None, kind="whole")
        owner, _ = lists_of(grades, lengths)
        relevant = (grades > 0).unsqueeze(1)
        if not relevant.any():
            raise ValueError("grades: no item is relevant")
        lists, gains = owner.unsqueeze(1), grades.double().exp2() - 1
        if not gains.isfinite().all():
            raise ValueError(f"grades: 2**{grades.max().item()} is too large a gain")
        term = Plain(surrogate or SquaredHinge())
        everyone = torch.ones_like(relevant)
        pairs = Pairs(relevant, everyone, lists, len(lengths), term=term, own=1.0)
        best = ideal_dcg(gains, owner, lengths, top_k)
        importance = list_weights(weights, len(lengths))
        super().__init__(pairs, _shares(gains[pairs.anchors.cells], best, importance, pairs.group))
        self.top_k, self.softness = top_k, softness
        self._structure(gains=gains, importance=importance)
        self._running("ideal", torch.zeros(len(lengths)))

    def _outer(self, sums: Tensor, scale: Tensor, partners: Tensor) -> Tensor:
        rank = sums[..., 0] * scale.exp()
        gain = 1 / torch.log2(1 + rank)
        if self.top_k is not None:
            gain = gain * torch.sigmoid((self.top_k + 0.5 - rank) / self.softness)
        return -gain

    def _weights_so_far(self) -> Tensor:
        items = self.pairs.anchors.cells
        gains = self.gains[items] * self.seen[items]
        return _shares(gains, self.ideal, self.importance, self.pairs.group)

    def _look(self, change: Change) -> tuple[Tensor, Tensor | None]:
        longer = self.pairs.owner[change.index, 0][~change.known].unique()
        change.journal.write(self.ideal, longer, self._ideal(longer))
        return super()._look(change)

    def _ideal(self, lists: Tensor) -> Tensor:
        """The DCG of the best order of the items seen of some lists."""
        parts = [self.ideal[:0]]
        for some in self.pairs.split(lists):
            items, inside = self.pairs.partners.places(some)  # all items are partners
            gains = (self.gains[items] * (inside & self.seen[items])).sort(1, descending=True)[0]
            rank = torch.arange(1, gains.shape[1] + 1, device=lists.device)
            kept = rank <= (self.top_k or len(rank))
            parts.append((gains * kept / torch.log2(1 + rank.double())).sum(1))
        return torch.cat(parts)


def _shares(gains: Tensor, ideal: Tensor, importance: Tensor, group: Tensor) -> Tensor:
    """Gains over the ideal DCG of their lists, weighted among the lists that have one."""
    total = (importance * (ideal > 0)).sum()
    shares = importance / (ideal.where(ideal > 0, 1) * total.where(total > 0, 1))
    return gains * shares[group]
