"""ListNet's cross-entropy of the remembered scores."""

from typing import Any

import torch
from torch import Tensor

from fcco.data.arguments import structure
from fcco.losses.groups import Groups, list_weights
from fcco.losses.table import Change, ScoreLoss
from fcco.objectives.listwise import lists_of

__all__ = ["ListNetLoss"]


class ListNetLoss(ScoreLoss):
    """The mean over lists of the cross-entropy of softmax(scores) with softmax(grades).

        F = (1/Q) sum_lists (log sum_i exp(h_i) - sum_i p_i h_i),    p = softmax(y),

    as ``objectives.ListNet``. A sample is an item; items are numbered list after list. Lists need
    not come whole: a batch may hold one item.

    The lists of a batch are computed anew from the table. Besides the table it keeps 9 bytes per
    list that are saved with it, and 24 bytes per item of structure.

    Args:
        grades: (N,), of every item.
        lengths: (Q,), adding up to N.
        weights: (Q,), how much each list counts in the mean; None: all alike.

    Examples:
        >>> criterion = ListNetLoss(torch.tensor([1.0, 1.0, 5.0]), torch.tensor([2, 1]))
        >>> criterion.exact(torch.zeros(3))  # (log 2 + log 1) / 2
        tensor(0.3466)
    """

    costs: Tensor
    """(Q,), of each list, over the items seen."""
    begun: Tensor
    """(Q,), whether it has any."""
    grades: Tensor
    owner: Tensor
    """(N,), the list of each item."""
    weights: Tensor

    def __init__(self, grades: Any, lengths: Any, *, weights: Any = None) -> None:
        grades = structure("grades", grades, None, kind="real")
        lengths = structure("lengths", lengths, None, kind="whole")
        owner, _ = lists_of(grades, lengths)
        super().__init__(len(grades))
        self.lists = Groups.of(owner, len(lengths))
        weights = list_weights(weights, len(lengths))
        self._structure(grades=grades.double(), owner=owner, weights=weights)
        self._running("costs", torch.zeros(len(lengths)))
        self.register_buffer("begun", torch.zeros(len(lengths), dtype=torch.bool))

    def exact(self, scores: Tensor) -> Tensor:
        """F of all N scores, differentiable."""
        costs = _costs(self._all(scores)[:, 0], self.grades, self.owner, len(self.costs))
        return ((self.weights * costs).sum() / self.weights.sum()).to(costs.dtype)

    def _look(self, change: Change) -> tuple[Tensor, Tensor | None]:
        lists = self.owner[change.index].unique()
        items, which = self.lists.members(lists)
        seen = self.seen[items]
        items, which = items[seen], which[seen]
        with torch.enable_grad():
            h = self.scores[items, 0].double().requires_grad_()
            costs = _costs(h, self.grades[items], which, len(lists))
        change.journal.write(self.costs, lists, costs.detach())
        change.journal.write(self.begun, lists, torch.ones_like(self.begun[lists]))
        total = (self.weights * self.begun).sum().clamp(min=torch.finfo(torch.float64).tiny)
        value = (self.weights * self.costs).sum() / total
        if not change.slopes:
            return value, None
        (slopes,) = torch.autograd.grad(costs, h, self.weights[lists] / total)
        return value, slopes[torch.searchsorted(items, change.index)].unsqueeze(1)


def _costs(h: Tensor, grades: Tensor, owner: Tensor, count: int) -> Tensor:
    """The cross-entropy of each of ``count`` lists; nothing for a list without items."""
    top = h.new_full((count,), -torch.inf)
    top_grade = top.scatter_reduce(0, owner, grades.to(h.dtype), "amax")[owner]
    gains = (grades.to(h.dtype) - top_grade).exp()
    p = gains / top.new_zeros(count).index_add(0, owner, gains)[owner]
    top = top.scatter_reduce(0, owner, h.detach(), "amax")
    sums = top.new_zeros(count).index_add(0, owner, (h - top[owner]).exp())
    # log sum_j exp(h_j) - sum_i p_i h_i, without the difference of two large numbers.
    return top.new_zeros(count).index_add(0, owner, p * (top[owner] + sums.log()[owner] - h))
