"""The p-norm push, with one block per negative; it pushes the highest-ranked negatives down."""

from typing import Any

import torch
from torch import Tensor

from fcco.objectives.pairs import Term
from fcco.objectives.ranked import RankedObjective
from fcco.objectives.sampling import cost_probe
from fcco.objectives.score import differences
from fcco.objectives.surrogates import Logistic, Surrogate
from fcco.problem.batches import PairBatch
from fcco.problem.probe import Probe

__all__ = ["PNormPush"]


class PNormPush(RankedObjective):
    """The p-norm push, which pushes down the negatives that rank highest.

        F = (1/m) sum_{negatives i} u_i^p,    u_i = (1/n) sum_{positives j} l(h_i - h_j),

    averaged over the tasks that have a positive and a negative. With p = 2 the slope is linear, and
    ``FreshPair`` can be used. Block i is the i-th negative, task by task.

    Args:
        labels: (N,) or (N, T), 1 for positives and 0 for negatives; -1 or NaN where missing.
        power: p, at least 1.
        surrogate: l, which must not be negative; by default ``Logistic()``.
        paired: whether to report the second half of the drawn positives as ``Probe.pair``. The
            halves are independent if positives are drawn with replacement.

    Examples:
        >>> objective = PNormPush(torch.tensor([1, 0]), power=3.0)
        >>> objective.outer(torch.tensor([[2.0]]), torch.tensor([0]))
        tensor([8.])
        >>> objective.exact(torch.zeros(2))
        tensor(1.)
    """

    inner_dim = 1
    sign = -1.0

    def __init__(
        self,
        labels: Any,
        *,
        power: float = 4.0,
        surrogate: Surrogate | None = None,
        paired: bool = False,
    ) -> None:
        if not 1 <= power < float("inf"):
            raise ValueError(f"power must be at least 1, got {power}")
        self.power = power
        self.paired = paired
        self.surrogate = Logistic() if surrogate is None else surrogate
        self._build(labels)

    def _build(self, labels: Any) -> None:
        self._set_ranks(labels, negatives=True, compare_all=False)

    def _term(self) -> Term:
        return Term(self.surrogate)

    def _cost(self, sums: Tensor, scale: Tensor, partners: Tensor) -> Tensor:
        # The terms are not exponentiated, so the sum itself fits into float64.
        return (sums[..., 0] * scale.exp() / partners).pow(self.power)

    def inner(self, model: Any, batch: PairBatch) -> Probe:
        """Return the mean over the sampled positives."""
        costs = self.surrogate(-differences(model, batch, self.num_tasks))
        if not self.paired:
            return cost_probe(costs, batch)
        half = costs.shape[1] // 2
        if half < 1 or 2 * half != costs.shape[1]:
            raise ValueError("paired=True needs an even number of positives")
        # Each half has half of the weight, so the factor 2 makes both halves means again.
        terms = 2 * costs * batch.weights[0].to(costs.dtype)
        value, pair = (part.sum(1, keepdim=True) for part in terms.split(half, dim=1))
        return Probe(batch.blocks, value, samples=half, pair=pair)

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Return u^p."""
        return self._outer(u, torch.zeros_like(u[:, 0]), blocks)

    def feasible(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Keep u non-negative, as costs are."""
        return u.clamp(min=0)
