"""NDCG and NDCG at K with smooth ranks."""

import math
from typing import Any

import torch
from torch import Tensor

from fcco.objectives.discounted_gain import ideal_dcg
from fcco.objectives.domains import check_positive
from fcco.objectives.lists import ListObjective
from fcco.objectives.pair_sums import PairSums
from fcco.objectives.pairs import Pairs, Term
from fcco.objectives.running import RunningSums
from fcco.objectives.sampling import cost_probe
from fcco.objectives.score import differences
from fcco.objectives.structure import Column, Structure
from fcco.objectives.surrogates import SquaredHinge, Surrogate
from fcco.problem.batches import PairBatch
from fcco.problem.probe import Probe

__all__ = ["NDCG"]


class NDCG(ListObjective):
    """Minus NDCG, or minus NDCG at K, with smooth ranks, averaged over lists.

        F = -(1/Q) sum_i (2^y_i - 1) / (Z log2(1 + r_i)),    r_i = 1 + sum_{j != i} l(h_j - h_i).

    Here j runs over the list of item i, Z is the ideal DCG of that list (of its top K), and Q is
    the number of lists with a relevant item. For NDCG at K, a gain is multiplied by
    sigmoid((K + 1/2 - r_i) / softness), a smooth form of 1[r_i <= K].

    Items are numbered list after list. Block i is the i-th item with a positive grade, and u is
    the mean of l over its list.

    Args:
        grades: (N,), the grade of every item, where 0 is irrelevant.
        lengths: (Q,), the lengths of the lists, adding up to N.
        top_k: K, or None for the whole list.
        surrogate: l, by default ``SquaredHinge()``. It replaces the step function. An item counts
            itself as 1, whatever l(0) is.
        softness: the width of the cut at K, in ranks.
        weights: (Q,), how much each list counts in the mean, or None if all count alike.

    Examples:
        >>> objective = NDCG(torch.tensor([0, 1, 2]), torch.tensor([2, 1]))
        >>> objective.exact(torch.tensor([0.0, 2.0, 1.0]))  # both lists in their ideal order
        tensor(-1.)
        >>> objective.metric(torch.tensor([0.0, 2.0, 1.0]))
        1.0
    """

    inner_dim = 1

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
        self.top_k = top_k
        self.softness = softness
        self.surrogate = SquaredHinge() if surrogate is None else surrogate
        self.weights = weights
        self._build(grades, lengths)

    def _build(self, grades: Any, lengths: Any) -> None:
        self._set_lists(grades, lengths)
        gains = torch.expm1(self.grades.double() * math.log(2))  # 2^y - 1
        if not self.num_blocks:
            raise ValueError("grades: no item is relevant")
        if not gains.sum().isfinite():
            raise ValueError(f"grades: 2^y overflows at y = {self.grades.max().item()}")
        anchor = (self.grades > 0).unsqueeze(1)
        self._pairs = Pairs(
            anchor,
            torch.ones_like(anchor),
            self._owner.unsqueeze(1),
            len(self.lengths),
            term=Term(self.surrogate),
            own_pair=True,
        )
        self._gain = Structure(gains=gains)
        weights = self._form_weights(None, torch.device("cpu"))
        self._known = Structure(weights=weights)
        self._factor = Column(weights * self.num_blocks)

    def _members(self, grades: Tensor) -> Tensor:
        return grades > 0

    def _row_weights(self, weight: Tensor | None) -> Tensor:
        """Return gains over the ideal DCG of their lists, (m,), weighted by list."""
        if weight is not None:
            return self._form_weights(weight, weight.device)
        known: Tensor = self._known.on(torch.device("cpu")).weights
        return known

    def _form_weights(self, weight: Tensor | None, device: torch.device) -> Tensor:
        lists, gains = self._lists.on(device), self._gain.on(device).gains
        if weight is not None:
            gains = gains * (weight > 0)
        # Absent items have no gain, so they do not count in the ideal order either.
        ideal = ideal_dcg(gains, lists.owner, len(lists.importance), self.top_k)
        importance = self._importance(weight, device) * (ideal > 0)
        total = importance.sum()
        share = importance / (ideal.where(ideal > 0, 1.0) * total.where(total > 0, 1.0))
        weights: Tensor = gains * share[lists.owner]
        return weights[self._pairs.structure.on(device).anchors]

    def _cost(self, sums: Tensor, scale: Tensor, partners: Tensor) -> Tensor:
        """Return minus the discount at a smooth rank, which is the sum over the list."""
        rank = sums[..., 0] * scale.exp()
        gain = 1 / torch.log2(1 + rank)
        if self.top_k is not None:
            gain = gain * torch.sigmoid((self.top_k + 0.5 - rank) / self.softness)
        return -gain

    def _value(self, h: Tensor, weight: Tensor | None) -> Tensor:
        rows = self._row_weights(weight).to(h.device)
        # In a rank every present item counts once, whatever its weight is.
        present = None if weight is None else (weight > 0).double()
        # The term 0 * h.sum() keeps the graph, so that backward works if no block is left.
        return self._pairs.value(h, rows, self._cost, present) + 0 * h.sum()

    def inner(self, model: Any, batch: PairBatch) -> Probe:
        """Return the mean over sampled items of the same list."""
        return cost_probe(self.surrogate(differences(model, batch, 1)), batch)

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Return minus the discounted gain at the smooth rank."""
        sizes = self._length(blocks, u)
        rank = sizes.unsqueeze(1) * u + self._pairs.own
        return self._factor(blocks, u) * self._cost(rank, torch.zeros_like(sizes), sizes)

    def outer_slope(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Return d/du of -G c / log2(1 + rank), where c is 1 or the factor of the cut at K."""
        sizes = self._length(blocks, u)
        rank = sizes * u[:, 0] + self._pairs.own
        discount = torch.log2(1 + rank)
        slope = self._factor(blocks, u) * sizes / discount
        # ``falling`` is minus the logarithmic derivative of c / log2(1 + rank) with respect to the
        # rank, and ``sizes`` is the derivative of the rank with respect to u.
        falling = 1 / (math.log(2) * (1 + rank) * discount)
        if self.top_k is not None:
            kept = torch.sigmoid((self.top_k + 0.5 - rank) / self.softness)
            slope = slope * kept
            falling = falling + (1 - kept) / self.softness
        return (slope * falling).unsqueeze(1)

    def feasible(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Keep u at least l(0) over the length, because the item itself is in the mean."""
        lowest = self.surrogate.at_zero / self._length(blocks, u)
        return torch.maximum(u, lowest.unsqueeze(1))

    def running_sums(self) -> RunningSums:
        """Return the rank of every relevant item, updated by what a batch changes."""
        return PairSums(self)
