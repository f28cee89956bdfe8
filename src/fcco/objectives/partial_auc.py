"""Partial AUC, by soft maxima over the hardest negatives or over the hardest positives."""

from typing import Any

import torch
from torch import Tensor

from fcco.objectives.curves import mean_over_tasks, partial_area
from fcco.objectives.domains import check_positive
from fcco.objectives.pairs import Term
from fcco.objectives.ranked import RankedObjective
from fcco.objectives.sampling import exponential_probe
from fcco.objectives.score import differences
from fcco.objectives.surrogates import SquaredHinge, Surrogate, exp_then_linear
from fcco.problem.batches import PairBatch
from fcco.problem.probe import Probe
from fcco.problem.scaled import ScaledObjective

__all__ = ["PartialAUC"]

_CAP = 20.0
"""Exponent from which the power of the two-way form continues along its tangent."""


class PartialAUC(RankedObjective, ScaledObjective):
    """The one-way or two-way partial AUC, by a soft maximum over the negatives of each positive.

        u_i = (1/n) sum_{negatives j} exp(l(h_j - h_i) / lambda),
        F = (1/m) sum_{positives i} lambda log u_i,

    averaged over the tasks that have a positive and a negative. The soft maximum emphasizes low
    false positive rates. With ``two_way``, there is a soft maximum over the positives as well:

        F = (1/m) sum_{positives i} u_i^(lambda / lambda_1).

    lambda_1 log F is then the two-way partial AUC risk. Beyond exp(20) the power continues along
    its tangent, which keeps F finite for any score.

    If ``min_tpr`` is given without ``max_fpr``, the roles are swapped, which emphasizes high
    sensitivity. Block i is then a negative, with a soft maximum over the positives that rank
    lowest. Otherwise block i is the i-th positive, task by task.

    Args:
        labels: (N,) or (N, T), 1 for positives and 0 for negatives; -1 or NaN where missing.
        temperature: lambda. With a small value only the hardest partner of each anchor counts.
        two_way: lambda_1, the temperature over the anchors, or None for the one-way form.
        max_fpr: the largest false positive rate that ``metric`` counts, by default 1. The objective
            itself does not depend on it: there, the temperature decides how few negatives count.
        min_tpr: the smallest true positive rate that ``metric`` counts, by default 0. Given without
            ``max_fpr``, it also swaps the roles of positives and negatives in the objective.
        surrogate: l, which must not be negative; by default ``SquaredHinge()``.

    Examples:
        >>> objective = PartialAUC(torch.tensor([1, 0, 0]), temperature=0.1)
        >>> objective.exact(torch.tensor([0.0, 0.0, -5.0]))  # 1 + 0.1 log(1/2)
        tensor(0.9307)
        >>> sensitive = PartialAUC(torch.tensor([1, 1, 0]), temperature=0.1, min_tpr=0.8)
        >>> sensitive.num_blocks, sensitive.metric(torch.tensor([2.0, 1.0, 0.0]))
        (1, 1.0)
    """

    inner_dim = 1

    def __init__(
        self,
        labels: Any,
        *,
        temperature: float,
        two_way: float | None = None,
        max_fpr: float | None = None,
        min_tpr: float | None = None,
        surrogate: Surrogate | None = None,
    ) -> None:
        check_positive(temperature=temperature, two_way=1.0 if two_way is None else two_way)
        if max_fpr is not None and min_tpr is not None and two_way is None:
            raise ValueError(
                "max_fpr and min_tpr together are the two-way partial AUC: give two_way too"
            )
        self.temperature, self.two_way = temperature, two_way
        self.max_fpr, self.min_tpr = max_fpr, min_tpr
        self.surrogate = SquaredHinge() if surrogate is None else surrogate
        # Check the rates now, and not only when the metric is computed.
        partial_area(*self._rates(None, None))
        # A bound on the sensitivity alone concerns the positives that rank lowest.
        self.swapped = min_tpr is not None and max_fpr is None
        self.sign = -1.0 if self.swapped else 1.0
        self._build(labels)

    def _build(self, labels: Any) -> None:
        self._set_ranks(labels, negatives=self.swapped, compare_all=False)
        self.inner_size = int(self.sizes.max())

    def _term(self) -> Term:
        return Term(self.surrogate, self.temperature)

    def _cost(self, sums: Tensor, scale: Tensor, partners: Tensor) -> Tensor:
        # The sums are not means yet, hence the logarithm of the number of partners.
        log_u = sums[..., 0].log() + scale - partners.to(sums.dtype).log()
        if self.two_way is None:
            return self.temperature * log_u
        return exp_then_linear(self.temperature / self.two_way * log_u, _CAP)

    def inner(self, model: Any, batch: PairBatch) -> Probe:
        """Return the mean over the sampled partners."""
        costs = self.surrogate(self.sign * differences(model, batch, self.num_tasks))
        return exponential_probe(costs / self.temperature, batch)

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Return lambda log u, or a power of u if two-way."""
        return self._outer(u, log_scale, blocks)

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Keep u at least 1, which follows from l >= 0."""
        # exp(-log_scale) is 1 in units of the mantissa; the clamp keeps it finite in float32.
        return torch.maximum(u, (-log_scale).clamp(max=80).exp().unsqueeze(1))

    def metric(
        self,
        scores: Any,
        weight: Any = None,
        *,
        max_fpr: float | None = None,
        min_tpr: float | None = None,
    ) -> float:
        """Return the partial area under the ROC curve in [0, 1], averaged over tasks.

        Without rates, those of the objective count. A given rate replaces both of them, so that
        ``max_fpr`` alone is the one-way area of any objective.

        Args:
            scores: (N,) or (N, T), the scores of all samples.
            weight: (N,), how much each sample counts, or None if all count alike.
            max_fpr: the largest false positive rate, by default 1 if ``min_tpr`` is given.
            min_tpr: the smallest true positive rate, by default 0 if ``max_fpr`` is given.

        Examples:
            >>> objective = PartialAUC(torch.tensor([1, 0]), temperature=1.0, min_tpr=0.5)
            >>> objective.metric(torch.zeros(2))  # of the triangle in the upper half
            0.25
            >>> objective.metric(torch.zeros(2), max_fpr=1.0)  # the whole area
            0.5
        """
        curve = partial_area(*self._rates(max_fpr, min_tpr))
        return mean_over_tasks(scores, self.labels, weight, curve)

    def _rates(self, max_fpr: float | None, min_tpr: float | None) -> tuple[float, float]:
        if max_fpr is None and min_tpr is None:
            max_fpr, min_tpr = self.max_fpr, self.min_tpr
        return 1.0 if max_fpr is None else max_fpr, 0.0 if min_tpr is None else min_tpr
