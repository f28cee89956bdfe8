"""Neighbourhood components analysis: one block per point, attracted by the points of its class."""

import math
from copy import copy
from typing import Any, Self

import torch
from torch import Tensor

from fcco.objectives.domains import check_positive, project_ratio
from fcco.objectives.pooled import PooledObjective
from fcco.objectives.sampling import error_of_means, exponentials
from fcco.objectives.score import widened
from fcco.problem.batches import PairBatch
from fcco.problem.given import structure
from fcco.problem.probe import Probe
from fcco.problem.scaled import ScaledObjective

__all__ = ["NCA"]

_PRODUCTS = 1 << 19
"""Distances that are formed at a time in an exact value."""


class NCA(PooledObjective, ScaledObjective):
    """Minus the probability that a soft nearest neighbour has the point's class.

    With d_ij = |e(x_i) - e(x_j)|^2 / temperature of embeddings e and j over the other points,

        u = (mean 1[y_j = y_i] exp(-d_ij), mean exp(-d_ij)),  f(u) = -u_1 / u_2,

    or minus its logarithm, which also has a gradient for points that are far from their class.

    Block i is point i.

    Args:
        classes: (N,), whole numbers.
        temperature: the scale of the squared distances.
        logarithm: use -log(u_1 / u_2 + eps), pytorch-metric-learning's form.
        eps: added to the probability before the logarithm.

    Examples:
        >>> objective = NCA(torch.tensor([0, 0, 1]))
        >>> objective.outer(torch.tensor([[0.1, 0.4]]), torch.tensor([0]))
        tensor([-0.2500])
        >>> objective.exact(torch.zeros(3, 2))  # one half, one half, none
        tensor(-0.3333)
    """

    inner_dim = 2

    def __init__(
        self,
        classes: Any,
        *,
        temperature: float = 1.0,
        logarithm: bool = False,
        eps: float = 1e-6,
    ) -> None:
        check_positive(temperature=temperature, eps=eps)
        self.temperature = temperature
        self.logarithm = logarithm
        self.eps = eps
        self._build(classes)

    def _build(self, classes: Any) -> None:
        self.classes = structure("classes", classes, None, kind="whole")
        count = len(self.classes)
        if not count:
            raise ValueError("classes is empty")
        self.num_samples = self.num_blocks = self.inner_size = count

    def on(self, classes: Any) -> Self:
        """The same objective for other points."""
        other = copy(self)
        other._build(classes)
        return other

    def among(self, index: Tensor) -> PairBatch:
        """These points, compared with one another; none if there is only one."""
        blocks = index if len(index) > 1 or self.num_samples == 1 else index[:0]
        count = self.num_samples
        share = (count - 1) / (count * max(len(index) - 1, 1))
        places = torch.arange(len(index))
        return PairBatch(
            blocks,
            index,
            partners=places,
            weights=self._weights(blocks, index, share),
            samples=len(index),
            anchors=places[: len(blocks)],
        )

    def _batch(self, blocks: Tensor, partners: Tensor) -> PairBatch:
        return PairBatch(
            blocks,
            torch.cat([blocks, partners]),
            partners=torch.arange(len(blocks), len(blocks) + len(partners)),
            weights=self._weights(blocks, partners, 1 / len(partners)),
            samples=len(partners),
            anchors=torch.arange(len(blocks)),
        )

    def _weights(self, points: Tensor, partners: Tensor, share: float) -> Tensor:
        """(2, b, k): of partners of the same class, and of all; a point is not its own partner."""
        other = (points[:, None] != partners).double() * share
        same = self.classes[points, None] == self.classes[partners]
        return torch.stack([other * same, other])

    def inner(self, model: Any, batch: PairBatch) -> Probe:
        """Both means over the sampled points."""
        embeddings = widened(model(batch.inputs))
        anchors, partners = embeddings[batch.anchors], embeddings[batch.partners]
        # Differences, not |a|^2 + |b|^2 - 2ab, which loses the small distances that matter.
        exponents = -(anchors.unsqueeze(1) - partners).square().sum(-1) / self.temperature
        same, all_points = batch.weights.to(exponents.dtype)
        terms, scale = exponentials(exponents, all_points)
        both = torch.stack([terms * (same != 0), terms], dim=2)
        noise = error_of_means(both.detach(), all_points, batch.samples)
        return Probe(batch.blocks, both.sum(1), batch.samples, log_scale=scale, noise=noise)

    def exact(self, embeddings: Tensor) -> Tensor:
        """F of the embeddings (N, d) of all points, differentiable, in float64."""
        count = self.num_samples
        if len(embeddings) != count:
            raise ValueError(
                f"embeddings must have shape ({count}, d), got {tuple(embeddings.shape)}"
            )
        points = widened(embeddings).double()
        points = points.flatten(1) if points.ndim > 1 else points.unsqueeze(1)
        points = (points - points.mean(0)) / math.sqrt(self.temperature)
        classes, total = self.classes.to(points.device), points.new_zeros(())
        for rows in torch.arange(count, device=points.device).split(max(1, _PRODUCTS // count)):
            terms = _minus_squares(points[rows], points)
            itself = torch.zeros_like(terms, dtype=torch.bool)
            itself[torch.arange(len(rows)), rows] = True
            terms = terms.masked_fill(itself, -torch.inf)
            top = terms.detach().amax(1, keepdim=True)
            terms = (terms - top.where(top.isfinite(), 0)).exp()
            same = terms.where(classes[rows, None] == classes, 0).sum(1)
            u = torch.stack([same, terms.sum(1)], dim=1)
            total = total + self.scaled_outer(u, torch.zeros_like(same), rows).sum()
        return (total / count).to(torch.promote_types(embeddings.dtype, torch.float32))

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
    return -distances.square()
