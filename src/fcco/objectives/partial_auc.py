"""Partial AUC: one block per positive, with a soft maximum (KL) over its hardest negatives."""

from typing import Any, Self

import torch
from torch import Tensor

from fcco.objectives.domains import check_positive
from fcco.objectives.scores import differences, exponentials, summed
from fcco.objectives.sums import CACHED
from fcco.objectives.surrogates import SquaredHinge, Surrogate, exp_then_linear
from fcco.objectives.whole import crosses
from fcco.problem.batches import AnchorBatch, PairBatch
from fcco.problem.probe import Probe
from fcco.problem.scaled import ScaledObjective

__all__ = ["OneWayPartialAUC", "TwoWayPartialAUC"]


class _HardNegatives(ScaledObjective):
    """u = mean over negatives of exp(l(h(x-) - h(x_i)) / temperature), at least 1."""

    inner_dim = 1

    def __init__(
        self,
        num_positives: int,
        num_negatives: int,
        temperature: float,
        surrogate: Surrogate | None,
    ) -> None:
        check_positive(
            num_positives=num_positives, num_negatives=num_negatives, temperature=temperature
        )
        self.num_blocks = num_positives
        self.inner_size = num_negatives
        self.temperature = temperature
        self.surrogate = SquaredHinge() if surrogate is None else surrogate

    def inner(self, model: Any, batch: AnchorBatch) -> Probe:
        """The mean over the sampled negatives."""
        exponents = self.surrogate(differences(model, batch)) / self.temperature
        terms, scale = exponentials(exponents, batch.weights)
        values, noise = summed(terms, batch)
        return Probe(batch.blocks, values, batch.samples, log_scale=scale, noise=noise)

    def inner_of_all(self, batch: Any) -> Probe | None:
        """The mean over all negatives; those so low that l = 0 are counted, not compared."""
        if not isinstance(batch, PairBatch) or batch.labels is not None or batch.own.any():
            return None
        values = torch.full((len(batch.blocks),), torch.nan, dtype=torch.float64)
        scale = torch.zeros_like(values)
        for blocks, _, anchors, partners in crosses(batch):
            n, ordered = len(partners), partners.sort().values
            for some in anchors.argsort().split(max(1, CACHED // n)):
                own = anchors[some]
                bound = own[0] + self.surrogate.zero_below
                low = min(int(torch.searchsorted(ordered, bound)), n - 1)
                exponents = self.surrogate(ordered[low:] - own[:, None]).div_(self.temperature)
                top = exponents.amax(1).clamp(min=0).ceil()
                sums = exponents.sub_(top[:, None]).exp_().sum(1) + low * (-top).exp()
                values[blocks[some]], scale[blocks[some]] = sums / n, top
        if values.isnan().any():
            return None
        return Probe(batch.blocks, values.unsqueeze(1), len(batch.partners), log_scale=scale)

    def on(self, data: Any) -> Self:
        """With the positives and negatives of ``data``."""
        return self._with(num_blocks=data.num_blocks, inner_size=data.num_partners)

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """u >= 1, because l >= 0."""
        return torch.maximum(u, (-log_scale).clamp(max=80).exp().unsqueeze(1))


class OneWayPartialAUC(_HardNegatives):
    """A soft maximum over the negatives of each positive: emphasizes low false-positive rates.

        u = mean exp(l(h(x-) - h(x_i)) / lambda),  f(u) = lambda log u.

    Block i is the i-th positive.

    Args:
        num_positives: m.
        num_negatives: n.
        temperature: lambda; near 0 only the hardest negative counts, for large values all count
            equally (plain AUC).
        surrogate: l, non-negative.

    Examples:
        >>> objective = OneWayPartialAUC(3, num_negatives=10, temperature=0.5)
        >>> objective.outer(torch.ones(1, 1), torch.tensor([0]))
        tensor([0.])
    """

    def __init__(
        self,
        num_positives: int,
        num_negatives: int,
        temperature: float = 1.0,
        surrogate: Surrogate | None = None,
    ) -> None:
        super().__init__(num_positives, num_negatives, temperature, surrogate)

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """lambda log u."""
        return self.temperature * (u[:, 0].log() + log_scale)


class TwoWayPartialAUC(_HardNegatives):
    """Soft maxima over negatives and over positives: emphasizes low false-positive and high
    true-positive rates.

        u = mean exp(l(h(x-) - h(x_i)) / lambda_2),  f(u) = u^(lambda_2 / lambda_1).

    lambda_1 times the logarithm of F is the two-way partial AUC risk. Beyond exp(``cap``), f
    continues along its tangent in log u, which keeps it finite for any score.

    Block i is the i-th positive.

    Args:
        num_positives: m.
        num_negatives: n.
        positive_temperature: lambda_1.
        negative_temperature: lambda_2.
        surrogate: l, non-negative.
        cap: the exponent from which f continues along its tangent.

    Examples:
        >>> objective = TwoWayPartialAUC(3, num_negatives=10, positive_temperature=0.5)
        >>> objective.outer(torch.full((1, 1), 3.0), torch.tensor([0])).round(decimals=4)
        tensor([9.])
    """

    def __init__(
        self,
        num_positives: int,
        num_negatives: int,
        positive_temperature: float = 1.0,
        negative_temperature: float = 1.0,
        surrogate: Surrogate | None = None,
        cap: float = 20.0,
    ) -> None:
        super().__init__(num_positives, num_negatives, negative_temperature, surrogate)
        check_positive(positive_temperature=positive_temperature, cap=cap)
        self.positive_temperature = positive_temperature
        self.cap = cap

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """A power of u, through its logarithm."""
        ratio = self.temperature / self.positive_temperature
        return exp_then_linear(ratio * (u[:, 0].log() + log_scale), self.cap)
