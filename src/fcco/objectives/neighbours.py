"""Neighbourhood components analysis: one block per point, attracted by the points of its class."""

from typing import Any, Self

import torch
from torch import Tensor

from fcco.objectives.domains import check_positive, project_ratio
from fcco.objectives.scores import exponentials, summed, widened
from fcco.objectives.sums import CACHED
from fcco.problem.batches import AnchorBatch, PairBatch
from fcco.problem.probe import Probe
from fcco.problem.scaled import ScaledObjective

__all__ = ["NCA"]


class NCA(ScaledObjective):
    """Minus the probability that a soft nearest neighbour has the point's class.

    With d_ij = |e(x_i) - e(x_j)|^2 / temperature of embeddings e and j over the other points,

        u = (mean 1[y_j = y_i] exp(-d_ij), mean exp(-d_ij)),  f(u) = -u_1 / u_2,

    or minus its logarithm, which also has a gradient for points that are far from their class.

    Block i is point i.

    Args:
        num_points: m = n.
        temperature: the scale of the squared distances.
        logarithm: use -log(u_1 / u_2).
        eps: added to the probability before the logarithm.

    Examples:
        >>> NCA(num_points=10).outer(torch.tensor([[0.1, 0.4]]), torch.tensor([0]))
        tensor([-0.2500])
    """

    inner_dim = 2

    def __init__(
        self,
        num_points: int,
        temperature: float = 1.0,
        *,
        logarithm: bool = False,
        eps: float = 1e-6,
    ) -> None:
        check_positive(num_points=num_points, temperature=temperature, eps=eps)
        self.num_blocks = self.inner_size = num_points
        self.temperature = temperature
        self.logarithm = logarithm
        self.eps = eps

    def inner(self, model: Any, batch: AnchorBatch) -> Probe:
        """Both means over the sampled points."""
        if batch.related is None:
            raise ValueError("NCA needs AnchorBatch.related, which marks pairs of the same class")
        embeddings = widened(model(batch.inputs))
        anchors, partners = embeddings[batch.anchors], embeddings[batch.partners]
        # Differences, not |a|^2 + |b|^2 - 2ab, which loses the small distances that matter.
        exponents = -(anchors.unsqueeze(1) - partners).square().sum(-1) / self.temperature
        weights = batch.weights.to(exponents.dtype).expand_as(exponents)
        terms, scale = exponentials(exponents, weights)
        values, noise = summed(torch.stack([terms * batch.related, terms], dim=2), batch)
        return Probe(batch.blocks, values, batch.samples, log_scale=scale, noise=noise)

    def inner_of_all(self, batch: Any) -> Probe | None:
        """Both means over all points, with distances that are not kept as differences."""
        if not isinstance(batch, PairBatch) or batch.classes is None or (batch.own > 0).any():
            return None
        batch = batch.to(batch.inputs.device)
        embeddings, anchors, partners = widened(batch.inputs), batch.anchors, batch.partners
        embeddings = embeddings.flatten(1) if embeddings.ndim > 1 else embeddings.unsqueeze(1)
        values, scale = embeddings.new_empty(len(anchors), 2), embeddings.new_empty(len(anchors))
        for some in torch.arange(len(anchors)).split(max(1, CACHED // len(partners))):
            own, others = embeddings[anchors[some]], embeddings[partners]
            distances = torch.cdist(own, others, compute_mode="donot_use_mm_for_euclid_dist")
            exponents = distances.square_().div_(-self.temperature)
            exponents.masked_fill_(anchors[some, None] == partners, -torch.inf)
            top = exponents.amax(1).ceil()
            scale[some] = top.where(top.isfinite(), 0)
            terms = exponents.sub_(scale[some, None]).exp_()
            same = batch.classes[anchors[some], None] == batch.classes[partners]
            values[some] = torch.stack([(terms * same).sum(1), terms.sum(1)], 1) / len(partners)
        return Probe(batch.blocks, values, len(partners), log_scale=scale)

    def on(self, data: Any) -> Self:
        """With the points of ``data``."""
        return self._with(num_blocks=data.num_blocks, inner_size=data.num_blocks)

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """The ratio does not depend on the scale."""
        # A sample without other points has a zero row, which must not have a steep slope.
        probability = u[:, 0] / torch.where(u[:, 1] > 0, u[:, 1], 1)
        return -(probability + self.eps).log() if self.logarithm else -probability

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """0 <= u_1 <= u_2; a row of zeros, from a sample without other points, is valid."""
        return project_ratio(u, 0.0)
