"""The p-norm push of the remembered scores."""

from typing import Any

import torch
from torch import Tensor

from fcco.losses.guard import Guard
from fcco.losses.labels import read_labels
from fcco.losses.pair_loss import PairLoss
from fcco.losses.pairs import Pairs
from fcco.losses.terms import Plain
from fcco.objectives.surrogates import Logistic, Surrogate

__all__ = ["PushLoss"]


class PushLoss(PairLoss):
    """The negatives that rank highest are pushed down hardest, as ``objectives.PNormPush``.

        F = (1/m) sum_{negatives i} u_i^p,    u_i = (1/n) sum_{positives j} l(h_i - h_j),

    meaned over the tasks that have a positive and a negative.

    Args:
        labels: (N,) or (N, tasks), 1 or 0; -1 or NaN where missing.
        power: p, at least 1.
        surrogate: l, non-negative; ``Logistic()`` if None.

    Examples:
        >>> PushLoss(torch.tensor([1, 0]), power=3.0).exact(torch.zeros(2))
        tensor(1.)
    """

    def __init__(
        self, labels: Any, *, power: float = 4.0, surrogate: Surrogate | None = None
    ) -> None:
        if not 1 <= power < float("inf"):
            raise ValueError(f"power must be at least 1, got {power}")
        positive, negative = read_labels(labels)
        tasks = positive.shape[1]
        term, owner = Plain(surrogate or Logistic()), torch.arange(tasks).unsqueeze(0)
        pairs = Pairs(negative, positive, owner, tasks, term=term, sign=-1.0)
        super().__init__(pairs, pairs.mean_weights(pairs.sizes), Guard(pairs, power))
        self.power = power

    def _outer(self, sums: Tensor, scale: Tensor, partners: Tensor) -> Tensor:
        return (sums[..., 0] * scale.exp() / partners).pow(self.power)
