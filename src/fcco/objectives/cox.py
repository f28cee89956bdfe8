"""Cox's partial likelihood, linear or deep: one block per event, compared with its risk set."""

from typing import Any, Self

import torch
from torch import Tensor

from fcco.objectives.domains import check_positive
from fcco.objectives.scores import differences, exponentials, scores_of, summed
from fcco.problem.batches import AnchorBatch, RiskBatch
from fcco.problem.probe import Probe
from fcco.problem.scaled import ScaledObjective

__all__ = ["Cox"]


class Cox(ScaledObjective):
    """The mean negative log partial likelihood over the events.

        u = (1/n) sum_j 1[t_j >= t_i] exp(h(x_j) - h(x_i)),  f(u) = log(n u).

    The weights of the batch say which subjects are at risk and how ties are treated (Breslow,
    Efron), see ``fcco.data.AnchorData.survival``. Higher scores mean earlier events.

    Block i is the i-th event, in the order of the subjects.

    Args:
        num_events: m.
        num_subjects: n.
        max_ties: for Efron's ties, the largest number of events at one time: the weight of such
            an event in its own risk set is at least 1 / max_ties.

    Examples:
        >>> Cox(num_events=3, num_subjects=10).outer(torch.tensor([[0.1]]), torch.tensor([0]))
        tensor([0.])
    """

    inner_dim = 1

    def __init__(self, num_events: int, num_subjects: int, max_ties: int = 1) -> None:
        check_positive(num_events=num_events, num_subjects=num_subjects, max_ties=max_ties)
        self.num_blocks = num_events
        self.inner_size = num_subjects
        self.max_ties = max_ties

    def inner(self, model: Any, batch: AnchorBatch) -> Probe:
        """The mean over the sampled subjects at risk."""
        terms, scale = exponentials(differences(model, batch), batch.weights)
        values, noise = summed(terms, batch)
        return Probe(batch.blocks, values, batch.samples, log_scale=scale, noise=noise)

    def inner_of_all(self, batch: Any) -> Probe | None:
        """The sums over all risk sets, in the order of the times."""
        if not isinstance(batch, RiskBatch) or not batch.inputs.isfinite().all():
            return None
        scores = scores_of(torch.nn.Identity(), batch.inputs).cpu().double()
        scores = scores - scores.median()
        own = scores[batch.anchors]
        log_sums = scores[batch.order].logcumsumexp(0)[batch.ends - 1]
        lowest = own.new_full((len(own),), -torch.inf)
        peak = lowest.scatter_reduce(0, batch.tied, own, "amax")[batch.tied]
        tied = torch.zeros_like(own).index_add(0, batch.tied, (own - peak).exp())[batch.tied]
        kept = torch.log1p(-batch.shares * tied * (peak - log_sums).exp())
        exponents = log_sums + kept - own
        scale = exponents.ceil()
        values = (exponents - scale).exp() / len(batch.order)
        return Probe(batch.blocks, values.unsqueeze(1), len(batch.order), log_scale=scale)

    def on(self, data: Any) -> Self:
        """With the events and subjects of ``data``."""
        sizes = {"num_blocks": data.num_blocks, "inner_size": data.num_partners}
        return self._with(**sizes, max_ties=data.max_ties)

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """The log of the sum over the risk set."""
        return (self.inner_size * u[:, 0]).log() + log_scale

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """The subject itself is at risk: u >= 1/n, divided by ``max_ties``."""
        own = (-log_scale).clamp(max=80).exp().unsqueeze(1)
        return torch.maximum(u, own / (self.inner_size * self.max_ties))
