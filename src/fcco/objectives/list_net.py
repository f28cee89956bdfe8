"""ListNet: the cross-entropy between the softmax of grades and that of scores."""

from typing import Any

import torch
from torch import Tensor

from fcco.objectives.lists import ListObjective
from fcco.objectives.running import Change, RunningSums, Update
from fcco.objectives.sampling import exponential_probe
from fcco.objectives.score import differences
from fcco.objectives.structure import Column
from fcco.problem.batches import PairBatch
from fcco.problem.probe import Probe
from fcco.problem.scaled import ScaledObjective

__all__ = ["ListNet"]


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
