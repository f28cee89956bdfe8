"""Importance-weighted bounds for models with latent variables, with one block per data point."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from fcco.objectives.domains import check_positive
from fcco.objectives.sampling import exponentials, standard_error
from fcco.objectives.score import unlocked, widened
from fcco.problem.batches import PointBatch
from fcco.problem.given import whole
from fcco.problem.probe import Probe
from fcco.problem.sampled import SampledObjective
from fcco.problem.scaled import ScaledObjective

__all__ = ["IWAE"]


class IWAE(SampledObjective, ScaledObjective):
    """Minus the log-likelihood, estimated by importance weights without the bias of few samples.

        u = mean over z ~ q(. | x_i) of p(x_i, z) / q(z | x_i),  f(u) = -log u.

    The model is called as ``model(inputs, samples)`` and returns log p(x, z) - log q(z | x), of
    shape (B1, samples). Block i is data point i.

    Args:
        num_samples: m, the number of data points.
        least_share: the lower bound of a row, as a fraction of a fresh value. Other objectives use
            1/n, but here n is infinite.
        exact_samples: the number of latent samples per point in an exact pass, which is itself an
            estimate here.

    Examples:
        >>> IWAE(3).outer(torch.ones(1, 1), torch.tensor([0]))
        tensor([-0.])
    """

    inner_dim = 1

    def __init__(
        self, num_samples: int, *, least_share: float = 1e-4, exact_samples: int = 256
    ) -> None:
        if not 0 < least_share <= 1:
            raise ValueError(f"least_share must lie in (0, 1], got {least_share}")
        # A row is bounded below by 1 / inner_size of a fresh value.
        self.inner_size = round(1 / float(least_share))
        self.exact_samples = whole("exact_samples", exact_samples)
        check_positive(exact_samples=self.exact_samples)
        self._build(num_samples)

    def _build(self, num_samples: int) -> None:
        self.num_samples = self.num_blocks = whole("num_samples", num_samples)
        check_positive(num_samples=self.num_samples)

    def on(self, num_samples: int) -> Self:
        """Return the same objective for other points."""
        other = unlocked(self)
        other._build(num_samples)
        return other

    def draw(
        self, blocks: Tensor, own: Tensor, shared: Tensor, *, replacement: bool = True
    ) -> PointBatch:
        """Return the points of ``blocks``; the model draws their latent samples."""
        return PointBatch(blocks, blocks, samples=own.shape[1])

    def spans(self, size: int) -> Sequence[Tensor]:
        """Divide the points into chunks, in their order."""
        return torch.split(torch.arange(self.num_blocks), size)

    def chunk(self, span: Tensor) -> PointBatch:
        """Return a batch of the given points."""
        return PointBatch(span, span, samples=self.exact_samples)

    def among(self, index: Tensor) -> PointBatch:
        """Return these points, with one latent sample each."""
        return PointBatch(index, index, samples=1)

    def batch(self, inputs: Any, index: Any, samples: int = 1) -> Any:
        """Form a batch of given points, with ``samples`` latent samples each."""
        check_positive(samples=whole("samples", samples))
        return replace(super().batch(inputs, index), samples=samples)

    def inner(self, model: Any, batch: PointBatch) -> Probe:
        """Return the mean over fresh latent samples."""
        weights = widened(model(batch.inputs, batch.samples))
        if weights.shape != (len(batch.blocks), batch.samples):
            raise ValueError(
                f"the model must return log-weights of shape ({len(batch.blocks)}, "
                f"{batch.samples}), got {tuple(weights.shape)}"
            )
        uniform = weights.new_full((batch.samples,), 1 / batch.samples)
        # Importance weights differ by many orders of magnitude, so they are formed relative to the
        # largest one of each point.
        terms, scale = exponentials(weights, uniform)
        values, noise = terms.sum(1, keepdim=True), standard_error(terms.detach(), batch.samples)
        return Probe(batch.blocks, values, batch.samples, log_scale=scale, noise=noise.unsqueeze(1))

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Return -log u."""
        return -(u[:, 0].log() + log_scale)

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Keep u positive, so that its logarithm is finite."""
        return u.clamp(min=torch.finfo(u.dtype).tiny)
