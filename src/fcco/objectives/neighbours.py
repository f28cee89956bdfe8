"""Neighbourhood components analysis, with one block per point."""

import math
from typing import Any, Self

import torch
from torch import Tensor

from fcco.objectives.domains import check_positive, project_ratio
from fcco.objectives.pooled import PooledObjective, check_embeddings, sum_over_anchors
from fcco.objectives.sampling import error_of_means, exponentials
from fcco.objectives.score import unlocked, widened
from fcco.problem.batches import PairBatch
from fcco.problem.given import structure, tensor
from fcco.problem.probe import Probe
from fcco.problem.scaled import ScaledObjective

__all__ = ["NCA"]


class NCA(PooledObjective, ScaledObjective):
    """Minus the probability that a soft nearest neighbour has the point's own class.

    Let d_ij = |e(x_i) - e(x_j)|^2 / temperature, with embeddings e. With means over the other
    points j,

        u = (mean 1[y_j = y_i] exp(-d_ij), mean exp(-d_ij)),  f(u) = -u_1 / u_2.

    Alternatively, f is minus the logarithm of this probability. It also has a gradient for points
    that are far from their class. Block i is point i.

    Args:
        classes: (N,), the class of each point, as whole numbers.
        temperature: the scale of the squared distances.
        logarithm: whether to use f(u) = -log(u_1 / u_2 + eps), as pytorch-metric-learning does.
        eps: a number that is added to the probability before the logarithm.

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
        """Return the same objective for other points."""
        other = unlocked(self)
        other._build(classes)
        return other

    def among(self, index: Tensor) -> PairBatch:
        """Return these points compared with one another; a single point gives no block."""
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
        """Return the weights (2, b, k) of partners of the same class, and of all other partners."""
        other = (points[:, None] != partners).double() * share
        same = self.classes[points, None] == self.classes[partners]
        return torch.stack([other * same, other])

    def inner(self, model: Any, batch: PairBatch) -> Probe:
        """Return both means over the sampled points."""
        embeddings = widened(model(batch.inputs))
        anchors, partners = embeddings[batch.anchors], embeddings[batch.partners]
        # |a|^2 + |b|^2 - 2ab would cancel for small distances, which have the largest terms.
        exponents = -(anchors.unsqueeze(1) - partners).square().sum(-1) / self.temperature
        same, all_points = batch.weights.to(exponents.dtype)
        terms, scale = exponentials(exponents, all_points)
        # ``terms`` carries the weights of all partners, of which ``same`` selects the own class.
        both = torch.stack([terms * (same != 0), terms], dim=2)
        noise = error_of_means(both.detach(), all_points, batch.samples)
        return Probe(batch.blocks, both.sum(1), batch.samples, log_scale=scale, noise=noise)

    def exact(self, embeddings: Tensor) -> Tensor:
        """Return F of the embeddings (N, d) of all points, differentiable, computed in float64."""
        count = self.num_samples
        embeddings = tensor("embeddings", embeddings)
        if len(embeddings) != count:
            raise ValueError(
                f"embeddings must have shape ({count}, d), got {tuple(embeddings.shape)}"
            )
        points = widened(embeddings).double()
        points = points.flatten(1) if points.ndim > 1 else points.unsqueeze(1)
        check_embeddings(embeddings=points)
        # Distances do not change with the centre, but smaller numbers round less.
        points = (points - points.mean(0)) / math.sqrt(self.temperature)
        classes = self.classes.to(points.device)

        def value(rows: Tensor) -> Tensor:
            terms = _minus_squares(points[rows], points)
            itself = torch.zeros_like(terms, dtype=torch.bool)
            itself[torch.arange(len(rows)), rows] = True
            terms = terms.masked_fill(itself, -torch.inf)
            # The quotient u_1 / u_2 does not change if both are divided by the largest term. A
            # single point has no term at all, and its largest exponent is -inf.
            top = terms.detach().amax(1, keepdim=True)
            terms = (terms - top.where(top.isfinite(), 0)).exp()
            same = terms.where(classes[rows, None] == classes, 0).sum(1)
            u = torch.stack([same, terms.sum(1)], dim=1)
            return self.scaled_outer(u, torch.zeros_like(same), rows).sum()

        total = sum_over_anchors(count, points.device, value)
        return (total / count).to(torch.promote_types(embeddings.dtype, torch.float32))

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Return minus the probability, or minus its logarithm; the scale cancels in it."""
        # A point without partners has u = (0, 0). Dividing by 1 keeps its value and slope finite.
        probability = u[:, 0] / torch.where(u[:, 1] > 0, u[:, 1], 1)
        return -(probability + self.eps).log() if self.logarithm else -probability

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Project onto 0 <= u_1 <= u_2; a row of zeros, without any partner, is valid."""
        return project_ratio(u, 0.0)


def _minus_squares(points: Tensor, others: Tensor) -> Tensor:
    """Return -|a - b|^2 for all pairs of rows.

    The formula |a|^2 + |b|^2 - 2ab is several times faster. It is used where it rounds by at most
    1e-12.

    Examples:
        >>> _minus_squares(torch.tensor([[0.0]]), torch.tensor([[1.0], [3e3]]))
        tensor([[-1.0000e+00, -9.0000e+06]])
    """
    left, right = points.square().sum(1, keepdim=True), others.square().sum(1)
    if max(left.max(), right.max()) < 1e3:
        return torch.addmm(left + right, points, others.T, beta=-1, alpha=2)
    distances = torch.cdist(points, others, compute_mode="donot_use_mm_for_euclid_dist")
    return -distances.square()
