"""Objectives that rank the items of lists, NDCG and ListNet, with one block per item."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from fcco.objectives.domains import check_positive
from fcco.objectives.pair_sums import PairSums
from fcco.objectives.pairs import Pairs, Term
from fcco.objectives.running import Change, RunningSums, Update
from fcco.objectives.sampling import cost_probe, exponential_probe
from fcco.objectives.score import (
    ScoreObjective,
    differences,
    read_scores,
    read_weight,
    unlocked,
)
from fcco.objectives.structure import Column, Structure
from fcco.objectives.surrogates import SquaredHinge, Surrogate
from fcco.problem.batches import PairBatch
from fcco.problem.draws import draw
from fcco.problem.given import structure
from fcco.problem.probe import Probe
from fcco.problem.scaled import ScaledObjective

__all__ = ["NDCG", "ListNet", "ndcg"]


class ListObjective(ScoreObjective):
    """Base class of objectives that compare an item with the other items of its list.

    Items are numbered list after list. With weights, a list counts by the mean weight of its
    items, and items of weight 0 are absent.
    """

    top_k: int | None = None
    weights: Any = None
    """(Q,), how much each list counts, in float64; or None if all count alike."""

    @abstractmethod
    def _members(self, grades: Tensor) -> Tensor:
        """Return which items are blocks, (N,)."""

    def _set_lists(self, grades: Any, lengths: Any) -> None:
        grades = structure("grades", grades, None, kind="real")
        lengths = structure("lengths", lengths, None, kind="whole")
        if int(lengths.sum()) != len(grades):
            raise ValueError(
                f"lengths must add up to the {len(grades)} grades, they add up to "
                f"{int(lengths.sum())}"
            )
        if (lengths < 1).any():
            empty = (lengths < 1).nonzero().flatten().tolist()
            raise ValueError(f"lists {empty} are empty")
        if (grades < 0).any():
            raise ValueError("grades must be finite and not negative")
        importance = torch.ones(len(lengths), dtype=torch.float64)
        if self.weights is not None:
            given = structure("weights", self.weights, len(lengths), kind="positive")
            self.weights = importance = given.double()
        self.grades, self.lengths = grades, lengths
        self.num_samples = len(grades)
        self._owner = torch.arange(len(lengths)).repeat_interleave(lengths)
        self._items = self._members(grades).nonzero().flatten()
        self.num_blocks = len(self._items)
        self._block = torch.full((len(grades),), -1)
        self._block[self._items] = torch.arange(self.num_blocks)
        owner = self._owner[self._items]
        # Of each block: where its list begins among all items, and how long the list is.
        self._starts = (lengths.cumsum(0) - lengths)[owner]
        self._sizes = lengths[owner]
        self._length = Column(self._sizes.double())
        self._lists = Structure(owner=self._owner, grades=grades.double(), importance=importance)

    def on(self, grades: Any, lengths: Any, *, weights: Any = None) -> Self:  # type: ignore[override]
        """Return the same objective for other lists.

        Weights belong to their lists, so the other lists have weights of their own.

        Args:
            grades: (N,), the grade of every item of the other lists.
            lengths: (Q,), the lengths of the other lists.
            weights: (Q,), how much each of them counts, or None if all count alike.

        Examples:
            >>> objective = ListNet([1, 1, 5], [2, 1], weights=[3, 1])
            >>> objective.on([1, 1, 5], [2, 1]).exact(torch.zeros(3))  # (log 2 + log 1) / 2
            tensor(0.3466)
        """
        other = unlocked(self)
        other.weights = weights
        return super(ListObjective, other).on(grades, lengths)

    def check_draw(self, samples: int, *, replacement: bool) -> None:
        """Raise a ``ValueError`` if a list is shorter than the samples to draw."""
        super().check_draw(samples, replacement=replacement)
        short = (self.lengths < samples).nonzero().flatten().tolist()
        if not replacement and short:
            raise ValueError(
                f"lists {short[:10]} have fewer than the {samples} items requested without "
                "replacement"
            )

    def draw(
        self, blocks: Tensor, own: Tensor, shared: Tensor, *, replacement: bool = True
    ) -> PairBatch:
        """Draw, for each item, other items of its list; the item itself always counts."""
        place = draw(own, self._sizes[blocks], replacement=replacement)
        partners = self._starts[blocks, None] + place
        weights = torch.full(partners.shape, 1 / partners.shape[1], dtype=torch.float64)
        return self._batch(blocks, partners, weights, own.shape[1])

    def spans(self, size: int) -> Sequence[Tensor]:
        """Divide the blocks into chunks whose lists have about ``size`` items together."""
        longest = int(self.lengths.max())
        return torch.split(torch.arange(self.num_blocks), max(1, size // longest))

    def chunk(self, span: Tensor) -> PairBatch:
        """Return a batch of the given blocks, each with its whole list."""
        sizes = self._sizes[span]
        place = torch.arange(int(sizes.max())).expand(len(span), -1)
        inside = place < sizes[:, None]
        partners = self._starts[span, None] + torch.where(inside, place, 0)
        return self._batch(span, partners, inside / sizes[:, None].double(), sizes)

    def among(self, index: Tensor) -> PairBatch:
        """Return the blocks among ``index``, each compared with its list's items there."""
        own = (self._block[index] >= 0).nonzero().flatten()
        other = self._owner[index[own], None] == self._owner[index]
        other &= index[own, None] != index
        count, size = other.sum(1), self._sizes[self._block[index[own]]]
        # Without another item of its list in the batch, a block's mean would be far too small.
        kept = (count > 0) | (size == 1)
        own, other, count, size = own[kept], other[kept], count[kept], size[kept]
        # The ``count`` others in the batch stand for the size - 1 others of the list; the item
        # itself is counted exactly, with the weight 1 / size.
        share = (size - 1) / (size * count.clamp(min=1)).double()
        places = torch.arange(len(index)).expand(len(own), -1)
        weights = torch.cat([other * share[:, None], 1 / size[:, None].double()], dim=1)
        return PairBatch(
            self._block[index[own]],
            index,
            partners=torch.cat([places, own[:, None]], dim=1),
            weights=weights.unsqueeze(0),
            samples=count.clamp(min=1),
            anchors=own,
            fixed=1,
        )

    def _batch(
        self, blocks: Tensor, partners: Tensor, weights: Tensor, samples: int | Tensor
    ) -> PairBatch:
        items = self._items[blocks]
        weights = weights.masked_fill(partners == items[:, None], 0)
        fixed = 1 / self._sizes[blocks, None].double()
        count = partners.numel()
        places = torch.arange(count).view(partners.shape)
        own = torch.arange(count, count + len(blocks))
        return PairBatch(
            blocks,
            torch.cat([partners.flatten(), items]),
            partners=torch.cat([places, own[:, None]], dim=1),
            weights=torch.cat([weights, fixed], dim=1).unsqueeze(0),
            samples=samples,
            anchors=own,
            fixed=1,
        )

    def _importance(self, weight: Tensor | None, device: torch.device) -> Tensor:
        """Return how much each list counts, (Q,): 0 if none of its items is present."""
        lists = self._lists.on(device)
        importance: Tensor = lists.importance
        if weight is None:
            return importance
        zeros = torch.zeros_like(importance)
        count = zeros.index_add(0, lists.owner, (weight > 0).double())
        return importance * zeros.index_add(0, lists.owner, weight) / count.clamp(min=1)

    def metric(self, scores: Any, weight: Any = None) -> float:
        """Return NDCG (at K), averaged over the lists with a relevant item; see ``ndcg``."""
        h = read_scores(scores, self.num_samples, 1).detach().cpu()[:, 0]
        w = None if weight is None else read_weight(weight, self.num_samples).cpu()
        importance = self._importance(w, torch.device("cpu"))
        kept = torch.ones_like(self._owner, dtype=torch.bool) if w is None else w > 0
        return ndcg(h[kept], self.grades[kept], self._owner[kept], importance, self.top_k)


class ListNet(ListObjective, ScaledObjective):
    """The cross-entropy between softmax(grades) and softmax(scores), averaged over lists.

        F = (1/Q) sum_lists (log sum_i exp(h_i) - sum_i p_i h_i),    p = softmax(y).

    Items are numbered list after list. Block i is item i, with u the mean of exp(h(x) - h(x_i))
    over the items x of its list, and f(u) = (m/Q) p_i log(n u), where n is the length of the list.

    Args:
        grades: (N,), the grade of every item.
        lengths: (Q,), the lengths of the lists, adding up to N.
        weights: (Q,), how much each list counts in the mean, or None if all count alike.

    Examples:
        >>> objective = ListNet(torch.tensor([1.0, 1.0, 5.0]), torch.tensor([2, 1]))
        >>> objective.exact(torch.zeros(3))  # (log 2 + log 1) / 2
        tensor(0.3466)
    """

    inner_dim = 1

    def __init__(self, grades: Any, lengths: Any, *, weights: Any = None) -> None:
        self.weights = weights
        self._build(grades, lengths)

    def _build(self, grades: Any, lengths: Any) -> None:
        self._set_lists(grades, lengths)
        self.inner_size = int(self.lengths.max())
        lists = self._lists.on(torch.device("cpu"))
        share = lists.importance / lists.importance.sum()
        p = _softmax(lists.grades, self._owner, len(self.lengths))
        self._weights = Column(p * share[self._owner] * self.num_blocks)

    def _members(self, grades: Tensor) -> Tensor:
        return torch.ones_like(grades, dtype=torch.bool)

    def inner(self, model: Any, batch: PairBatch) -> Probe:
        """Return the mean over sampled items of the same list."""
        return exponential_probe(differences(model, batch, 1), batch)

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Return p_i times the logarithm of the sum over the list, times its weight."""
        sizes = self._length(blocks, u)
        return self._weights(blocks, u) * ((sizes * u[:, 0]).log() + log_scale)

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Keep u at least 1/n, because the item itself is in its list of n items."""
        # The own term exp(0) = 1, in units of the mantissa; the clamp keeps it finite in float32.
        own = (-log_scale).clamp(max=80).exp() / self._length(blocks, u)
        return torch.maximum(u, own.unsqueeze(1))

    def _value(self, h: Tensor, weight: Tensor | None) -> Tensor:
        lists, count = self._lists.on(h.device), len(self.lengths)
        importance = self._importance(weight, h.device)
        kept = slice(None) if weight is None else weight > 0
        costs = _cross_entropies(h[:, 0][kept], lists.grades[kept], lists.owner[kept], count)
        total = importance.sum()
        return (importance * costs).sum() / total.where(total > 0, 1.0)

    def running_sums(self) -> RunningSums:
        """Return the cost of every list; a step recomputes those of its batch."""
        return _ListCosts(self)


class _ListCosts(RunningSums):
    """Running sums of ``ListNet``: the cross-entropy of every list over its seen items."""

    objective: ListNet

    def form(self, scores: Tensor, seen: Tensor) -> dict[str, Tensor]:
        """Compute the costs of all lists."""
        lists = self.objective._lists.on(scores.device)
        h, count = scores[:, 0].double()[seen], len(lists.importance)
        costs = _cross_entropies(h, lists.grades[seen], lists.owner[seen], count)
        return {"costs": costs}

    def update(self, change: Change) -> Update | None:
        """Return F and its slopes, from the lists of the batch and the costs of the others."""
        if not change.writes:
            return None
        objective, lists = self.objective, self.objective._lists.on(change.scores.device)
        mine = lists.owner[change.index].unique()
        lengths = objective.lengths.to(mine.device)
        starts, sizes = (lengths.cumsum(0) - lengths)[mine], lengths[mine]
        # All items of the lists that the batch touches: a new score changes the softmax of its
        # whole list. ``which`` numbers these lists, and ``items`` is sorted.
        which = torch.arange(len(mine), device=mine.device).repeat_interleave(sizes)
        items = torch.arange(len(which), device=mine.device)
        items = items + (starts - (sizes.cumsum(0) - sizes))[which]
        if not change.all_seen:
            here = change.seen[items]
            items, which = items[here], which[here]
        with torch.enable_grad():
            h = change.table[items, 0].double().requires_grad_(change.slopes)
            costs = _cross_entropies(h, lists.grades[items], which, len(mine))
        self.cache["costs"][mine] = costs.detach()
        importance = lists.importance
        if not change.all_seen:
            # Lists of which no item was seen yet do not belong to the mean.
            begun = torch.zeros_like(importance).index_fill(0, lists.owner[change.seen], 1.0)
            importance = importance * begun
        total = importance.sum()
        total = total.where(total > 0, 1.0)  # an empty batch may come first
        value = (importance * self.cache["costs"]).sum() / total
        if not change.slopes:
            return Update(value, None)
        (slopes,) = torch.autograd.grad(costs, h, importance[mine] / total)
        return Update(value, slopes[torch.searchsorted(items, change.index)].unsqueeze(1))


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
        ideal = _ideal_dcg(gains, lists.owner, len(lists.importance), self.top_k)
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


def ndcg(
    scores: Tensor, grades: Tensor, owner: Tensor, importance: Tensor, top_k: int | None
) -> float:
    """Return the normalized discounted cumulative gain, as a weighted mean over lists.

    With y the grade at rank r of a list, DCG = sum_{r <= K} (2^y - 1) / log2(1 + r). NDCG divides
    it by the DCG of the best order. Items with equal scores get the mean of the discounts of their
    ranks, which is the expectation over a random order. Lists without a relevant item are left out.

    Args:
        scores: (N,), the scores of the items.
        grades: (N,), the grades of the items.
        owner: (N,), the list of each item, in rising order.
        importance: (Q,), how much each list counts.
        top_k: K, or None for the whole list.

    Examples:
        >>> scores, grades = torch.tensor([0.3, 0.2, 0.1]), torch.tensor([0, 1, 0])
        >>> round(ndcg(scores, grades, torch.zeros(3).long(), torch.ones(1), None), 4)
        0.6309
    """
    gains, count = grades.double().exp2() - 1, len(importance)
    best = _ideal_dcg(gains, owner, count, top_k)
    order = _sorted_within(scores, owner)
    discount = _discounts(owner, count, top_k)
    # Equal scores within a list form a run; all items of a run get its mean discount.
    ordered = scores[order]
    breaks = (ordered[1:] != ordered[:-1]) | (owner[1:] != owner[:-1])
    run = torch.nn.functional.pad(breaks.long().cumsum(0), (1, 0))
    sums = discount.new_zeros(len(discount)).index_add(0, run, discount)
    discount = (sums / run.bincount(minlength=len(discount)))[run]
    found = best.new_zeros(count).index_add(0, owner, gains[order] * discount)
    relevant = importance * (best > 0)
    if not relevant.any():
        raise ValueError("grades: no list has a relevant item")
    each = found / best.where(best > 0, 1.0)
    return float((relevant * each).sum() / relevant.sum())


def _ideal_dcg(gains: Tensor, owner: Tensor, count: int, top_k: int | None) -> Tensor:
    """Return the DCG of the best order of each list."""
    order = _sorted_within(gains, owner)
    discounted = gains[order] * _discounts(owner, count, top_k)
    return discounted.new_zeros(count).index_add(0, owner, discounted)


def _sorted_within(keys: Tensor, owner: Tensor) -> Tensor:
    """Return the items list by list, with the largest keys of each list first."""
    # A stable sort by list after the sort by key keeps the order of the keys in every list.
    order = keys.argsort(descending=True, stable=True)
    return order[owner[order].argsort(stable=True)]


def _discounts(owner: Tensor, count: int, top_k: int | None) -> Tensor:
    """Return 1 / log2(1 + rank) of the places of each list, 0 beyond ``top_k``."""
    lengths = torch.bincount(owner, minlength=count)
    starts = lengths.cumsum(0) - lengths
    rank = torch.arange(len(owner), device=owner.device) - starts[owner] + 1
    discount = 1 / torch.log2(1 + rank.double())
    return discount if top_k is None else discount.where(rank <= top_k, 0)


def _softmax(y: Tensor, owner: Tensor, count: int) -> Tensor:
    """Return the softmax of y within each list."""
    top = y.new_full((count,), -torch.inf).scatter_reduce(0, owner, y, "amax")
    gains = (y - top[owner]).exp()
    return gains / gains.new_zeros(count).index_add(0, owner, gains)[owner]


def _cross_entropies(h: Tensor, grades: Tensor, owner: Tensor, count: int) -> Tensor:
    """Return the cross-entropy of each of ``count`` lists; 0 for a list without items."""
    p = _softmax(grades, owner, count)
    top = h.detach().new_full((count,), -torch.inf)
    top = top.scatter_reduce(0, owner, h.detach(), "amax")
    sums = top.new_zeros(count).index_add(0, owner, (h - top[owner]).exp())
    # sum_i p_i (log sum_j exp(h_j) - h_i): since p sums to 1, this is the cross-entropy, without
    # the difference of two large numbers.
    return top.new_zeros(count).index_add(0, owner, p * (top[owner] + sums.log()[owner] - h))
