"""Average precision, with one block per positive, which is ranked among all samples."""

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
    """Minus the average precision, or minus its mean over tasks (mAP).

        F = -(1/m) sum_{positives i} p_i / r_i,
        r_i = 1 + sum_{j != i} l(h_j - h_i),    p_i = 1 + sum_{positives j != i} l(h_j - h_i).

    Here r_i is a smooth rank among all samples and p_i a smooth rank among the positives. The
    surrogate l replaces the step 1[h_j >= h_i].

    The inner values of block i are the sums of l over the positives (u_1) and over all samples
    (u_2), both divided by the number n of samples, and f(u) = -(u_1 + c) / (u_2 + c). The constant
    c = (1 - l(0)) / n makes a positive count itself as 1, whatever l(0) is.

    Block i is the i-th positive. With several tasks, the positives of task 0 come first, then those
    of task 1, and so on. Tasks without a positive or without a negative are left out.

    Args:
        labels: (N,) or (N, T), 1 for positives and 0 for negatives; -1 or NaN where missing.
        surrogate: l, by default ``Sigmoid()``.

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
        """Return the sums of l over the positives and over all, divided by their number."""
        return cost_probe(self.surrogate(differences(model, batch, self.num_tasks)), batch)

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Return minus the precision at the rank of each positive."""
        return self._outer(u, torch.zeros_like(u[:, 0]), blocks)

    def outer_slope(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Return the gradient of f in closed form: (-1, precision) over the denominator."""
        own = self._pairs.own / self._sizes(blocks, u)
        positives, all_samples = (u + own.unsqueeze(1)).unbind(1)
        # f = -a / b with a = u_1 + c and b = u_2 + c: df/da = -1/b and df/db = (a/b) / b.
        inverse = 1 / all_samples
        if self._factor is not None:
            inverse = inverse * self._factor(blocks, u)
        return torch.stack([-inverse, positives / all_samples * inverse], dim=1)

    def feasible(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Project u so that u_1 <= u_2, and both contain the positive itself."""
        # The own pair adds l(0) / n to both components. Without it, u lies in 0 <= a <= b.
        own = (self.surrogate.at_zero / self._sizes(blocks, u)).unsqueeze(1)
        return project_ratio(u - own, 0.0) + own

    def metric(self, scores: Any, weight: Any = None) -> float:
        """Return the average precision, averaged over tasks."""
        return mean_over_tasks(scores, self.labels, weight, average_precision)
