"""Global contrastive losses: one block per anchor, compared with all other pairs of the data."""

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from fcco.objectives.domains import check_positive
from fcco.objectives.scores import error_of_means, exponentials, widened
from fcco.objectives.sums import PRODUCTS
from fcco.problem.batches import ViewBatch
from fcco.problem.probe import Probe
from fcco.problem.scaled import ScaledObjective

__all__ = ["GlobalContrastive"]


class GlobalContrastive(nn.Module, ScaledObjective):
    """InfoNCE against the whole data set instead of a batch.

    With s the cosine of the embeddings of x_i and y_j, and j over all other pairs,

        u = mean exp((s(x_i, y_j) - s(x_i, y_i)) / T),  f(u) = T log(eps + u).

    Block i < n compares x_i with the y_j; if two-way, block n + i compares y_i with the x_j.

    ``inner`` takes one encoder, or a tuple of two, one per view.

    Args:
        num_pairs: n.
        temperature: T.
        two_way: both directions, m = 2n.
        individual: learn one temperature per anchor: u gets a second component T_i, and
            f(u) = T_i (log(eps + u) + ``radius``). Pass ``objective.parameters()`` to the
            optimizer too, and save ``objective.state_dict()`` in checkpoints. T_i is at least
            ``temperature / 10``. A step then costs O(m), as for any parameter of size m.
        common: learn one temperature for all anchors, in the same way.
        radius: the radius of the KL ball of learned temperatures.
        eps: added to u; values of u far below it count as 0.

    Examples:
        >>> objective = GlobalContrastive(num_pairs=100, temperature=0.1, two_way=True)
        >>> objective.num_blocks
        200
    """

    def __init__(
        self,
        num_pairs: int,
        temperature: float = 0.1,
        *,
        two_way: bool = False,
        individual: bool = False,
        common: bool = False,
        radius: float = 0.5,
        eps: float = 1e-14,
    ) -> None:
        super().__init__()
        check_positive(num_pairs=num_pairs, temperature=temperature, radius=radius, eps=eps)
        if num_pairs < 2:
            raise ValueError("num_pairs must be at least 2: an anchor is compared with other pairs")
        if individual and common:
            raise ValueError("temperatures are individual or common, not both")
        self.num_pairs = self.inner_size = num_pairs
        self.num_blocks = 2 * num_pairs if two_way else num_pairs
        self.inner_dim = 2 if individual or common else 1
        self.scaled_dim = 1
        self.temperature = temperature
        self.radius = radius
        self.eps = eps
        self.temperatures: nn.Parameter | None = None
        if individual or common:
            count = self.num_blocks if individual else 1
            self.temperatures = nn.Parameter(torch.full((count,), temperature))

    def inner(self, model: Callable[[Tensor], Any] | tuple[Any, Any], batch: ViewBatch) -> Probe:
        """The mean over the sampled pairs, in the direction of each block."""
        first, second = model if isinstance(model, tuple) else (model, model)
        x = normalize(widened(first(batch.inputs)), dim=1)
        y = normalize(widened(second(batch.second)), dim=1)
        backward = batch.backward.unsqueeze(1)
        anchors = torch.where(backward, y[batch.anchors], x[batch.anchors])
        others = torch.where(backward, x[batch.anchors], y[batch.anchors])
        own = (anchors * others).sum(1)
        cosines = torch.where(
            backward, anchors @ x[batch.partners].T, anchors @ y[batch.partners].T
        )
        return self.compare(batch.blocks, own, cosines, batch.weights, len(batch.partners))

    def inner_of_all(self, batch: Any) -> Probe | None:
        """The mean over all pairs, in float64, without weights and noise of each of them."""
        if not isinstance(batch, ViewBatch):
            return None
        x, y = (normalize(widened(view).double(), dim=1) for view in (batch.inputs, batch.second))
        own, heat = (x * y).sum(1), self._heat(batch.blocks)
        columns = [own.new_empty(self.num_blocks)]
        if not isinstance(heat, float):
            columns.append(heat.squeeze(1).double())
        scale = torch.empty_like(columns[0])
        for blocks in torch.arange(len(x), device=x.device).split(max(1, PRODUCTS // len(x))):
            for first, second, shift in ((x, y, 0), (y, x, len(x)))[: self.num_blocks // len(x)]:
                terms = (first[blocks] @ second.T).sub_(own[blocks, None])
                terms.div_(heat if isinstance(heat, float) else heat[blocks + shift])
                terms[torch.arange(len(blocks)), blocks] = -torch.inf
                top = terms.amax(1)
                columns[0][blocks + shift] = terms.sub_(top[:, None]).exp_().sum(1) / (len(x) - 1)
                scale[blocks + shift] = top
        return Probe(batch.blocks, torch.stack(columns, dim=1), len(x), log_scale=scale)

    def compare(
        self, blocks: Tensor, own: Tensor, cosines: Tensor, weights: Tensor, samples: int
    ) -> Probe:
        """The mean over partners, from cosines.

        Args:
            blocks: (B1,).
            own: (B1,), of each anchor and its own partner.
            cosines: (B1, k), of each anchor and the others.
            weights: (B1, k), of each other partner in the mean.
            samples: partners behind each value.

        Examples:
            >>> objective = GlobalContrastive(num_pairs=9, temperature=1.0)
            >>> probe = objective.compare(torch.tensor([4]), torch.tensor([0.5]),
            ...     torch.tensor([[0.5, 0.5]]), torch.tensor([[0.5, 0.5]]), 2)
            >>> probe.values, probe.log_scale
            (tensor([[1.]]), tensor([0.]))
        """
        heat = self._heat(blocks)
        exponents = (cosines - own.unsqueeze(1)) / heat
        terms, scale = exponentials(exponents, weights)
        columns, noise = [terms.sum(1)], [error_of_means(terms.detach(), weights, samples)]
        if not isinstance(heat, float):
            columns.append(heat.squeeze(1))
            noise.append(torch.zeros_like(noise[0]))
        values = torch.stack(columns, dim=1)
        return Probe(blocks, values, samples, log_scale=scale, noise=torch.stack(noise, dim=1))

    def on(self, data: Any) -> Self:
        """With the pairs of ``data``; temperatures of single anchors belong to their own data."""
        count = 1 if self.temperatures is None else len(self.temperatures)
        if count > 1 and data.num_blocks != self.num_blocks:
            raise ValueError(
                f"individual temperatures belong to {self.num_blocks} anchors, the data set has "
                f"{data.num_blocks}"
            )
        pairs = len(data)
        return self._with(num_blocks=data.num_blocks, num_pairs=pairs, inner_size=pairs)

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """T log(eps + u)."""
        logarithm = torch.logaddexp(
            u[:, 0].log() + log_scale, torch.full_like(log_scale, self.eps).log()
        )
        if self.temperatures is None:
            return self.temperature * logarithm
        return u[:, 1] * (logarithm + self.radius)

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """u is positive, and so are temperatures."""
        u = u.clone()
        u[:, 0].clamp_(min=torch.finfo(u.dtype).tiny)
        if self.temperatures is not None:
            u[:, 1].clamp_(min=self.temperature / 10)
        return u

    def supported(self, u: Tensor, fresh: Tensor, fraction: float | Tensor) -> Tensor:
        """A bound only on the mean: the temperature is not a sum of positive terms."""
        return torch.cat([torch.maximum(u[:, :1], fraction * fresh[:, :1]), u[:, 1:]], dim=1)

    def _heat(self, blocks: Tensor) -> Tensor | float:
        if self.temperatures is None:
            return self.temperature
        every = self.temperatures
        heat = every[blocks] if len(every) > 1 else every.expand(len(blocks))
        # The gradient ignores the bound, so that a temperature below it can rise again.
        heat = heat + (heat.clamp(min=self.temperature / 10) - heat).detach()
        return heat.unsqueeze(1)
