"""Partial AUC of the remembered scores, one-way and two-way."""

from typing import Any

import torch
from torch import Tensor

from fcco.losses.guard import Guard
from fcco.losses.labels import read_labels
from fcco.losses.pair_loss import PairLoss
from fcco.losses.pairs import Pairs
from fcco.losses.terms import Exponentials
from fcco.objectives.domains import check_positive
from fcco.objectives.surrogates import SquaredHinge, Surrogate, exp_then_linear

__all__ = ["PartialAUCLoss"]

_CAP = 20.0
"""As in ``objectives.TwoWayPartialAUC``."""


class PartialAUCLoss(PairLoss):
    """Soft maxima over the negatives of each positive, as ``objectives.OneWayPartialAUC``.

        u_i = (1/n) sum_{negatives j} exp(l(h_j - h_i) / lambda),
        F = (1/m) sum_{positives i} lambda log u_i,

    or, two-way, with a soft maximum over the positives too (as ``objectives.TwoWayPartialAUC``),

        F = (1/m) sum_{positives i} u_i^(lambda / lambda_1),

    whose logarithm times lambda_1 is the two-way partial AUC risk; beyond exp(20) the power goes on
    along its tangent. Both are meaned over the tasks that have a positive and a negative.

    Args:
        labels: (N,) or (N, tasks), 1 or 0; -1 or NaN where missing.
        temperature: lambda; towards 0 only the hardest negative of each positive counts.
        two_way: lambda_1, for the positives; None: one-way.
        surrogate: l, non-negative; ``SquaredHinge()`` if None.

    Examples:
        >>> criterion = PartialAUCLoss(torch.tensor([1, 0, 0]), temperature=0.1)
        >>> criterion.exact(torch.tensor([0.0, 0.0, -5.0]))  # 1 + 0.1 log(1/2)
        tensor(0.9307)
    """

    def __init__(
        self,
        labels: Any,
        *,
        temperature: float,
        two_way: float | None = None,
        surrogate: Surrogate | None = None,
    ) -> None:
        check_positive(temperature=temperature, two_way=1.0 if two_way is None else two_way)
        positive, negative = read_labels(labels)
        tasks = positive.shape[1]
        term = Exponentials(surrogate or SquaredHinge(), temperature)
        owner = torch.arange(tasks).unsqueeze(0)
        pairs = Pairs(positive, negative, owner, tasks, term=term)
        steepness = 1.0 if two_way is None else max(1.0, temperature / two_way)
        super().__init__(pairs, pairs.mean_weights(pairs.sizes), Guard(pairs, steepness))
        self.temperature, self.two_way = temperature, two_way

    def _outer(self, sums: Tensor, scale: Tensor, partners: Tensor) -> Tensor:
        log_u = sums[..., 0].log() + scale - partners.to(sums.dtype).log()
        if self.two_way is None:
            return self.temperature * log_u
        return exp_then_linear(self.temperature / self.two_way * log_u, _CAP)
