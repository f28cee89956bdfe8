"""Ranking lists: ListNet and NDCG. One block per item of a list."""

import math
from copy import copy
from typing import Any, Self

import torch
from torch import Tensor

from fcco.objectives.domains import Column, check_positive
from fcco.objectives.scores import differences, exponentials, summed, weighed
from fcco.objectives.surrogates import SquaredHinge, Surrogate
from fcco.problem.batches import AnchorBatch
from fcco.problem.objective import Objective
from fcco.problem.probe import Probe
from fcco.problem.scaled import ScaledObjective

__all__ = ["NDCG", "ListNet", "ideal_dcg", "lists_of"]


class ListNet(ScaledObjective):
    """The mean over lists of the cross-entropy between softmax(grades) and softmax(scores).

        u = mean over x in the list of exp(h(x) - h(x_i)),  f(u) = (m/Q) p_i log(N u),

    where N is the length of the list, Q the number of lists, and p the softmax of the grades.

    Block i is item i; items are numbered list by list.

    Args:
        grades: (m,), the grade of every item.
        lengths: (Q,), the lengths of the lists.

    Examples:
        >>> objective = ListNet(torch.tensor([1.0, 0.0, 2.0]), torch.tensor([2, 1]))
        >>> objective.num_blocks, objective.inner_size
        (3, 2)
    """

    inner_dim = 1

    def __init__(self, grades: Tensor, lengths: Tensor) -> None:
        grades, lengths = grades.cpu(), lengths.cpu()
        owner, sizes = lists_of(grades, lengths)
        self.num_blocks = len(grades)
        self.inner_size = int(lengths.max())
        self._sizes = Column(sizes)
        gains = grades.double()
        top = torch.full_like(lengths, -torch.inf, dtype=torch.float64)
        top = top.scatter_reduce(0, owner, gains, "amax")
        gains = (gains - top[owner]).exp()
        totals = torch.zeros_like(top).index_add(0, owner, gains)
        self._weights = Column(gains / totals[owner] * (self.num_blocks / len(lengths)))

    def inner(self, model: Any, batch: AnchorBatch) -> Probe:
        """The mean over sampled items of the same list."""
        terms, scale = exponentials(differences(model, batch), batch.weights)
        values, noise = summed(terms, batch)
        return Probe(batch.blocks, values, batch.samples, log_scale=scale, noise=noise)

    def on(self, data: Any) -> Self:
        """With the lists of ``data``."""
        other = copy(self)
        ListNet.__init__(other, data.grades, data.lengths)
        return other

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """p times the log of the sum over the list."""
        sizes = self._sizes(blocks, u)
        return self._weights(blocks, u) * ((sizes * u[:, 0]).log() + log_scale)

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """The item itself is in the list: u >= 1/N."""
        own = (-log_scale).clamp(max=80).exp() / self._sizes(blocks, u)
        return torch.maximum(u, own.unsqueeze(1))


class NDCG(Objective):
    """Minus the mean over lists of NDCG, or of NDCG at K, with a smooth rank.

        u = mean over x in the list of l(h(x) - h(x_i)),  rank = N u + 1 - l(0),
        f(u) = -(m/Q) (2^y_i - 1) / (Z log2(1 + rank)),

    where Z is the ideal DCG of the list (of its top K), and Q the number of lists with a relevant
    item. For NDCG at K the gain is multiplied by sigmoid((K + 1/2 - rank) / softness).

    Block i is the i-th item with a positive grade; items are numbered list by list.

    Args:
        grades: the grade of every item; 0 is irrelevant.
        lengths: (number of lists,).
        top_k: K; None: the whole list.
        surrogate: l; an item counts itself as 1 for every l(0), so the first rank is 1.
        softness: the width of the cut at K, in ranks.

    Examples:
        >>> objective = NDCG(torch.tensor([2, 0, 1]), torch.tensor([3]))
        >>> ranks = torch.tensor([1.0, 2.0])  # both relevant items in their ideal places
        >>> (objective.outer(ranks[:, None] / 3, torch.tensor([0, 1])).mean()).round(decimals=6)
        tensor(-1.)
    """

    inner_dim = 1

    def __init__(
        self,
        grades: Tensor,
        lengths: Tensor,
        *,
        top_k: int | None = None,
        surrogate: Surrogate | None = None,
        softness: float = 0.5,
    ) -> None:
        grades, lengths = grades.cpu(), lengths.cpu()
        owner, sizes = lists_of(grades, lengths)
        check_positive(top_k=1 if top_k is None else top_k, softness=softness)
        relevant = grades > 0
        if not relevant.any():
            raise ValueError("grades: no item is relevant")
        self.num_blocks = int(relevant.sum())
        self.top_k = top_k
        self.softness = softness
        self.surrogate = SquaredHinge() if surrogate is None else surrogate
        gains = grades.double().exp2() - 1
        if not gains.sum().isfinite():
            raise ValueError(f"grades: 2^y overflows at y = {grades.max().item()}")
        ideal = ideal_dcg(gains, owner, lengths, top_k)
        self._sizes = Column(sizes[relevant])
        scale = self.num_blocks / int((ideal > 0).sum())
        self._gains = Column((gains / ideal[owner])[relevant] * scale)

    def inner(self, model: Any, batch: AnchorBatch) -> Probe:
        """The mean over sampled items of the same list."""
        costs = weighed(self.surrogate(differences(model, batch)), batch)
        values, noise = summed(costs, batch)
        return Probe(batch.blocks, values, batch.samples, noise=noise)

    def on(self, data: Any) -> Self:
        """With the lists of ``data``."""
        other = copy(self)
        NDCG.__init__(
            other,
            data.grades,
            data.lengths,
            top_k=self.top_k,
            surrogate=self.surrogate,
            softness=self.softness,
        )
        return other

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Minus the discounted gain at the smooth rank."""
        rank = self._rank(u, self._sizes(blocks, u))
        gain = self._gains(blocks, u) / torch.log2(1 + rank)
        return -gain if self.top_k is None else -gain * self._kept(rank)

    def outer_slope(self, u: Tensor, blocks: Tensor) -> Tensor:
        """d/du of G c / log2(1 + rank), where c is 1 or the factor of the cut at K."""
        sizes = self._sizes(blocks, u)
        rank = self._rank(u, sizes)
        discount = torch.log2(1 + rank)
        slope = self._gains(blocks, u) * sizes / discount
        falling = 1 / (math.log(2) * (1 + rank) * discount)
        if self.top_k is not None:
            kept = self._kept(rank)
            slope, falling = slope * kept, falling + (1 - kept) / self.softness
        return (slope * falling).unsqueeze(1)

    def _rank(self, u: Tensor, sizes: Tensor) -> Tensor:
        return sizes * u[:, 0] + (1 - self.surrogate.at_zero)

    def _kept(self, rank: Tensor) -> Tensor:
        """The factor of a gain, which falls from 1 to 0 at rank K."""
        assert self.top_k is not None
        return torch.sigmoid((self.top_k + 0.5 - rank) / self.softness)

    def feasible(self, u: Tensor, blocks: Tensor) -> Tensor:
        """The item's own l(0) is always in the mean."""
        lowest = self.surrogate.at_zero / self._sizes(blocks, u)
        return torch.maximum(u, lowest.unsqueeze(1))


def lists_of(grades: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The list of each item, and the length of that list; both arguments are checked.

    Examples:
        >>> lists_of(torch.tensor([0, 1, 2]), torch.tensor([1, 2]))
        (tensor([0, 1, 1]), tensor([1, 2, 2]))
    """
    if grades.ndim != 1 or lengths.ndim != 1 or int(lengths.sum()) != len(grades):
        raise ValueError(
            f"lengths must add up to the {len(grades)} grades, they add up to {int(lengths.sum())}"
        )
    if (lengths < 1).any():
        empty = (lengths < 1).nonzero().flatten().tolist()
        raise ValueError(f"lists {empty} are empty")
    if not (grades >= 0).all() or not grades.isfinite().all():
        raise ValueError("grades must be finite and not negative")
    owner = torch.arange(len(lengths)).repeat_interleave(lengths)
    return owner, lengths[owner]


def ideal_dcg(gains: Tensor, owner: Tensor, lengths: Tensor, top_k: int | None) -> Tensor:
    """The DCG of the best order of each list.

    Examples:
        >>> owner, lengths = torch.tensor([0, 0, 1]), torch.tensor([2, 1])
        >>> ideal_dcg(torch.tensor([0.0, 3.0, 1.0]), owner, lengths, top_k=None)
        tensor([3., 1.], dtype=torch.float64)
    """
    order = gains.argsort(descending=True, stable=True)
    order = order[owner[order].argsort(stable=True)]  # by list, and within it by gain
    starts = lengths.cumsum(0) - lengths
    rank = torch.arange(len(gains)) - starts[owner] + 1
    discounted = gains[order] / torch.log2(1 + rank.double())
    if top_k is not None:
        discounted = discounted * (rank <= top_k)
    ideal = torch.zeros(len(lengths), dtype=torch.float64)
    return ideal.index_add(0, owner, discounted)
