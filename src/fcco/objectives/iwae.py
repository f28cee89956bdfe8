"""Importance-weighted bounds for latent variables: one block per data point."""

from typing import Any, Self

import torch
from torch import Tensor

from fcco.objectives.domains import check_positive
from fcco.objectives.scores import exponentials, standard_error, widened
from fcco.problem.batches import PointBatch
from fcco.problem.probe import Probe
from fcco.problem.scaled import ScaledObjective

__all__ = ["IWAE"]


class IWAE(ScaledObjective):
    """Minus the log-likelihood by importance weights, without the bias of few samples.

        u = mean over z ~ q(. | x_i) of p(x_i, z) / q(z | x_i),  f(u) = -log u.

    The model is called as ``model(inputs, samples)`` and returns log p(x, z) - log q(z | x), of
    shape (B1, samples).

    Block i is data point i.

    Args:
        num_points: m.
        least_share: a lower bound of a row, as a fraction of a fresh value. There are infinitely
            many latent values, so 1/n cannot serve as the bound.

    Examples:
        >>> IWAE(num_points=3).outer(torch.ones(1, 1), torch.tensor([0]))
        tensor([-0.])
    """

    inner_dim = 1

    def __init__(self, num_points: int, least_share: float = 1e-4) -> None:
        check_positive(num_points=num_points)
        if not 0 < least_share <= 1:
            raise ValueError(f"least_share must lie in (0, 1], got {least_share}")
        self.num_blocks = num_points
        self.inner_size = round(1 / least_share)

    def inner(self, model: Any, batch: PointBatch) -> Probe:
        """The mean over fresh latent samples."""
        weights = widened(model(batch.inputs, batch.samples))
        if weights.shape != (len(batch.blocks), batch.samples):
            raise ValueError(
                f"the model must return log-weights of shape ({len(batch.blocks)}, "
                f"{batch.samples}), got {tuple(weights.shape)}"
            )
        uniform = weights.new_full((batch.samples,), 1 / batch.samples)
        terms, scale = exponentials(weights, uniform)
        values, noise = terms.sum(1, keepdim=True), standard_error(terms.detach(), batch.samples)
        return Probe(batch.blocks, values, batch.samples, log_scale=scale, noise=noise.unsqueeze(1))

    def on(self, data: Any) -> Self:
        """With the points of ``data``."""
        return self._with(num_blocks=data.num_blocks)

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """-log u."""
        return -(u[:, 0].log() + log_scale)

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """u is positive."""
        return u.clamp(min=torch.finfo(u.dtype).tiny)
