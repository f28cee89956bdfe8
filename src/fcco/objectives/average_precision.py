"""Average precision: one block per positive, ranked among all samples."""

from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import torch
from torch import Tensor

from fcco.objectives.domains import Column, check_positive, project_ratio
from fcco.objectives.scores import differences, summed, weighed
from fcco.objectives.surrogates import SquaredHinge, Surrogate
from fcco.objectives.whole import pair_means
from fcco.problem.batches import AnchorBatch, PairBatch
from fcco.problem.objective import Objective
from fcco.problem.probe import Probe

__all__ = ["AveragePrecision"]


class AveragePrecision(Objective):
    """Minus the average precision, or its mean over tasks (mAP).

    With x over all n samples and l instead of 1[h(x) >= h(x_i)],

        u = (mean 1[y=1] l(h(x) - h(x_i)), mean l(h(x) - h(x_i))),  f(u) = -u_1 / u_2

    (plus (1 - l(0)) / n above and below, so that a positive counts itself as 1 for every l).

    Block i is the i-th positive; with several tasks, the positives of task 0 come first, then those
    of task 1, and so on, as in ``fcco.data.AnchorData.average_precision``.

    Args:
        positives: the number of positives, one number per task.
        num_samples: n.
        surrogate: l.

    Examples:
        >>> objective = AveragePrecision(5, num_samples=100)
        >>> objective.outer(torch.tensor([[0.1, 0.2]]), torch.tensor([0]))
        tensor([-0.5000])
    """

    inner_dim = 2

    def __init__(
        self, positives: int | Sequence[int], num_samples: int, surrogate: Surrogate | None = None
    ) -> None:
        counts = torch.as_tensor(positives).reshape(-1).cpu()
        check_positive(positives=int(counts.min()), num_samples=num_samples)
        self.num_blocks = int(counts.sum())
        self.num_samples = num_samples
        self.surrogate = SquaredHinge() if surrogate is None else surrogate
        # Each task has the same weight, for any number of positives.
        weights = self.num_blocks / (len(counts) * counts.double())
        self._weights = Column(weights.repeat_interleave(counts)) if len(counts) > 1 else None

    def inner(self, model: Any, batch: AnchorBatch) -> Probe:
        """Both means over the partners."""
        if batch.related is None:
            raise ValueError(
                "AveragePrecision needs AnchorBatch.related, which marks the positives"
            )
        costs = weighed(self.surrogate(differences(model, batch)), batch)
        values, noise = summed(torch.stack([costs * batch.related, costs], dim=2), batch)
        return Probe(batch.blocks, values, batch.samples, noise=noise)

    def inner_of_all(self, batch: Any) -> Probe | None:
        """Both means over all samples, without all pairs if the surrogate allows that."""
        if not isinstance(batch, PairBatch) or batch.labels is None:
            return None
        means = pair_means(self.surrogate, batch)
        return None if means is None else Probe(batch.blocks, means, samples=len(batch.partners))

    def on(self, data: Any) -> Self:
        """With the positives of ``data``."""
        other = copy(self)
        counts = data.num_blocks if data.columns is None else data.columns.bincount()
        AveragePrecision.__init__(other, counts, data.num_partners, self.surrogate)
        return other

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Minus the precision at the rank of each positive."""
        own = (1 - self.surrogate.at_zero) / self.num_samples
        precision = (u[:, 0] + own) / (u[:, 1] + own)
        if self._weights is None:
            return -precision
        return -precision * self._weights(blocks, u)

    def outer_slope(self, u: Tensor, blocks: Tensor) -> Tensor:
        """(-1, precision) over the denominator."""
        own = (1 - self.surrogate.at_zero) / self.num_samples
        positives, all_samples = (u + own).unbind(1)
        inverse = 1 / all_samples
        if self._weights is not None:
            inverse = inverse * self._weights(blocks, u)
        return torch.stack([-inverse, positives / all_samples * inverse], dim=1)

    def feasible(self, u: Tensor, blocks: Tensor) -> Tensor:
        """u_1 <= u_2, and both contain at least the positive itself."""
        own = self.surrogate.at_zero / self.num_samples
        return project_ratio(u - own, 0.0) + own
