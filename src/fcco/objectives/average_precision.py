"""Average precision: one block per positive, ranked among all samples."""

from typing import Any

import torch
from torch import Tensor

from fcco.objectives.curves import average_precision, mean_over_tasks
from fcco.objectives.domains import project_ratio
from fcco.objectives.pairs import Term
from fcco.objectives.ranked import RankedObjective
from fcco.objectives.sampling import cost_probe
from fcco.objectives.score import differences
from fcco.objectives.surrogates import Sigmoid, Surrogate
from fcco.problem.batches import PairBatch
from fcco.problem.probe import Probe

__all__ = ["AveragePrecision"]


class AveragePrecision(RankedObjective):
    """Minus the average precision, or its mean over tasks (mAP).

        F = -(1/m) sum_{positives i} p_i / r_i,
        r_i = 1 + sum_{j != i} l(h_j - h_i),    p_i = 1 + sum_{positives j != i} l(h_j - h_i),

    smooth ranks among all samples and among the positives, with l instead of 1[h_j >= h_i]. Inner
    values are the means of l over the positives and over all samples, divided by the number of all:
    u = (u_1, u_2), f(u) = -(u_1 + c) / (u_2 + c), where c = (1 - l(0)) / n makes a positive count
    itself as 1 for every l.

    Block i is the i-th positive; with several tasks, the positives of task 0 come first, then those
    of task 1, and so on. Tasks without a positive or without a negative do not count.

    Args:
        labels: (N,) or (N, T), 1 or 0; -1 or NaN where missing.
        surrogate: l; ``Sigmoid()`` if None.

    Examples:
        >>> from fcco.objectives import SquaredHinge
        >>> objective = AveragePrecision(torch.tensor([1, 0]), surrogate=SquaredHinge())
        >>> objective.exact(torch.tensor([2.0, 0.0])), objective.exact(torch.zeros(2))
        (tensor(-1.), tensor(-0.5000))
        >>> objective.metric(torch.tensor([2.0, 0.0]))
        1.0
    """

    inner_dim = 2

    def __init__(self, labels: Any, *, surrogate: Surrogate | None = None) -> None:
        self.surrogate = Sigmoid() if surrogate is None else surrogate
        self._build(labels)

    def _build(self, labels: Any) -> None:
        self._set_ranks(labels, negatives=False, compare_all=True)

    def _term(self) -> Term:
        return Term(self.surrogate)

    def _cost(self, sums: Tensor, scale: Tensor, partners: Tensor) -> Tensor:
        return -sums[..., 1] / sums[..., 0]

    def inner(self, model: Any, batch: PairBatch) -> Probe:
        """Both means over the partners."""
        return cost_probe(self.surrogate(differences(model, batch, self.num_tasks)), batch)

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Minus the precision at the rank of each positive."""
        return self._outer(u, torch.zeros_like(u[:, 0]), blocks)

    def outer_slope(self, u: Tensor, blocks: Tensor) -> Tensor:
        """(-1, precision) over the denominator."""
        own = self._pairs.own / self._sizes(blocks, u)
        positives, all_samples = (u + own.unsqueeze(1)).unbind(1)
        inverse = 1 / all_samples
        if self._factor is not None:
            inverse = inverse * self._factor(blocks, u)
        return torch.stack([-inverse, positives / all_samples * inverse], dim=1)

    def feasible(self, u: Tensor, blocks: Tensor) -> Tensor:
        """u_1 <= u_2, and both contain at least the positive itself."""
        own = (self.surrogate.at_zero / self._sizes(blocks, u)).unsqueeze(1)
        return project_ratio(u - own, 0.0) + own

    def metric(self, scores: Any, weight: Any = None) -> float:
        """The average precision, the mean over tasks."""
        return mean_over_tasks(scores, self.labels, weight, average_precision)
