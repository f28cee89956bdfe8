"""Average precision of the remembered scores."""

from typing import Any

import torch
from torch import Tensor

from fcco.losses.labels import read_labels
from fcco.losses.pair_loss import PairLoss
from fcco.losses.pairs import Pairs
from fcco.losses.terms import Plain
from fcco.objectives.surrogates import SquaredHinge, Surrogate

__all__ = ["APLoss"]


class APLoss(PairLoss):
    """Minus the average precision, meaned over the tasks, as ``objectives.AveragePrecision``.

        F = -(1/m) sum_{positives i} p_i / r_i,
        r_i = 1 + sum_{j != i} l(h_j - h_i),    p_i = 1 + sum_{positives j != i} l(h_j - h_i),

    smooth ranks among all samples and among the positives. Tasks without a positive or without a
    negative are left out.

    Args:
        labels: (N,) or (N, tasks), 1 or 0; -1 or NaN where missing.
        surrogate: l, in place of the step; ``SquaredHinge()`` if None.

    Examples:
        >>> criterion = APLoss(torch.tensor([1, 0]))
        >>> criterion.exact(torch.tensor([2.0, 0.0])), criterion.exact(torch.zeros(2))
        (tensor(-1.), tensor(-0.5000))
    """

    def __init__(self, labels: Any, *, surrogate: Surrogate | None = None) -> None:
        positive, negative = read_labels(labels)
        tasks = positive.shape[1]
        pairs = Pairs(
            positive,
            positive | negative,
            torch.arange(tasks).unsqueeze(0),
            tasks,
            term=Plain(surrogate or SquaredHinge()),
            own=1.0,
            marked=positive,
        )
        super().__init__(pairs, pairs.mean_weights(pairs.sizes))

    def _outer(self, sums: Tensor, scale: Tensor, partners: Tensor) -> Tensor:
        return -sums[..., 1] / sums[..., 0]
