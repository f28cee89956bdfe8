"""Neighbourhood components analysis: one block per point, attracted by the points of its class."""

import math
from typing import Any, Self

import torch
from torch import Tensor

from fcco.objectives.domains import check_positive, project_ratio
from fcco.objectives.scores import error_of_means, exponentials, widened
from fcco.objectives.sums import PRODUCTS
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
        both = torch.stack([terms * batch.related, terms], dim=2)
        noise = error_of_means(both.detach(), weights, batch.samples)
        return Probe(batch.blocks, both.sum(1), batch.samples, log_scale=scale, noise=noise)

    def inner_of_all(self, batch: Any) -> Probe | None:
        """Both means over all points, in float64, one class at a time."""
        if not isinstance(batch, PairBatch) or batch.classes is None or (batch.own > 0).any():
            return None
        batch = batch.to(batch.inputs.device)
        points = widened(batch.inputs).double()
        points = points.flatten(1) if points.ndim > 1 else points.unsqueeze(1)
        points = (points - points.mean(0)) / math.sqrt(self.temperature)
        partners = batch.partners[batch.classes[batch.partners].argsort(stable=True)]
        place = torch.full_like(batch.classes, -1)
        place[partners] = torch.arange(len(partners), device=place.device)
        others, kinds = points[partners], batch.classes[batch.anchors]
        values, scale = points.new_empty(len(kinds), 2), points.new_empty(len(kinds))
        for kind in kinds.unique():
            same = (batch.classes[partners] == kind).nonzero().flatten()
            same = slice(*same[[0, -1]].add(same.new_tensor([0, 1]))) if len(same) else slice(0)
            mine = (kinds == kind).nonzero().flatten()
            for some in mine.split(max(1, PRODUCTS // len(partners))):
                terms = _minus_squares(points[batch.anchors[some]], others)
                itself = place[batch.anchors[some]]
                rows = (itself >= 0).nonzero().flatten()
                terms[rows, itself[rows]] = -torch.inf
                top = terms.amax(1)
                scale[some] = top.where(top.isfinite(), 0)
                terms.sub_(scale[some, None]).exp_()
                values[some, 0], values[some, 1] = terms[:, same].sum(1), terms.sum(1)
        return Probe(batch.blocks, values / len(partners), len(partners), log_scale=scale)

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


def _minus_squares(points: Tensor, others: Tensor) -> Tensor:
    """-|a - b|^2 for all pairs: by |a|^2 + |b|^2 - 2ab, several times faster, where that rounds by
    1e-12 at most.

    Examples:
        >>> _minus_squares(torch.tensor([[0.0]]), torch.tensor([[1.0], [3e3]]))
        tensor([[-1.0000e+00, -9.0000e+06]])
    """
    left, right = points.square().sum(1, keepdim=True), others.square().sum(1)
    if max(left.max(), right.max()) < 1e3:
        return torch.addmm(left + right, points, others.T, beta=-1, alpha=2)
    distances = torch.cdist(points, others, compute_mode="donot_use_mm_for_euclid_dist")
    return distances.square_().neg_()
