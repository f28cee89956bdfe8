"""p-norm push: one block per negative; those that rank highest are pushed down most."""

from typing import Any, Self

from torch import Tensor

from fcco.objectives.domains import check_positive
from fcco.objectives.scores import differences, summed, weighed
from fcco.objectives.surrogates import Logistic, Surrogate
from fcco.objectives.whole import pair_means
from fcco.problem.batches import AnchorBatch, PairBatch
from fcco.problem.objective import Objective
from fcco.problem.probe import Probe

__all__ = ["PNormPush"]


class PNormPush(Objective):
    """u = mean over positives of l(h(x_i) - h(x+)), f(u) = u^p.

    With p = 2 the slope is linear and ``FreshPair`` applies.

    Block i is the i-th negative.

    Args:
        num_negatives: m.
        power: p, at least 1.
        surrogate: l, non-negative: ``Logistic`` or ``Exponential``.
        paired: report the second half of the positives as ``Probe.pair``; it is independent if
            they are drawn with replacement.

    Examples:
        >>> import torch
        >>> PNormPush(5, power=3.0).outer(torch.tensor([[2.0]]), torch.tensor([0]))
        tensor([8.])
    """

    inner_dim = 1

    def __init__(
        self,
        num_negatives: int,
        power: float = 2.0,
        surrogate: Surrogate | None = None,
        *,
        paired: bool = False,
    ) -> None:
        check_positive(num_negatives=num_negatives)
        if not power >= 1:
            raise ValueError(f"power must be at least 1, got {power}")
        self.num_blocks = num_negatives
        self.power = power
        self.paired = paired
        self.surrogate = Logistic() if surrogate is None else surrogate

    def inner(self, model: Any, batch: AnchorBatch) -> Probe:
        """The mean over the sampled positives."""
        costs = self.surrogate(-differences(model, batch))  # the anchor is the one to push down
        terms = weighed(costs, batch)
        if not self.paired:
            values, noise = summed(terms, batch)
            return Probe(batch.blocks, values, batch.samples, noise=noise)
        half = terms.shape[1] // 2
        if half < 1 or 2 * half != terms.shape[1]:
            raise ValueError("paired=True needs an even number of positives")
        value, pair = (2 * part.sum(1, keepdim=True) for part in terms.split(half, dim=1))
        return Probe(batch.blocks, value, samples=half, pair=pair)

    def inner_of_all(self, batch: Any) -> Probe | None:
        """The mean over all positives, without all pairs if the surrogate allows that."""
        if not isinstance(batch, PairBatch) or batch.labels is not None:
            return None
        means = pair_means(self.surrogate, batch, flipped=True)
        return None if means is None else Probe(batch.blocks, means, samples=len(batch.partners))

    def on(self, data: Any) -> Self:
        """With the negatives of ``data``."""
        return self._with(num_blocks=data.num_blocks)

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """u^p."""
        return u[:, 0].pow(self.power)

    def feasible(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Costs are not negative."""
        return u.clamp(min=0)
