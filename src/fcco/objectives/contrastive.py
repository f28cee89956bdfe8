"""Global contrastive losses, with one block per anchor, compared with all other pairs."""

from collections.abc import Callable
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from fcco.objectives.domains import check_positive
from fcco.objectives.pooled import PooledObjective, check_embeddings, sum_over_anchors
from fcco.objectives.sampling import error_of_means, exponentials
from fcco.objectives.score import unlocked, widened
from fcco.problem.batches import ViewBatch
from fcco.problem.given import tensor, whole
from fcco.problem.probe import Probe
from fcco.problem.scaled import ScaledObjective

__all__ = ["GlobalContrastive"]


class GlobalContrastive(nn.Module, PooledObjective, ScaledObjective):
    """The contrastive loss InfoNCE against the whole data set instead of a batch.

    Let s be the cosine of the embeddings of x_i and y_j. With j over all other pairs,

        u = mean_j exp((s(x_i, y_j) - s(x_i, y_i)) / T),  f(u) = T log(eps + u).

    Block i < N compares x_i with all y_j. If ``two_way``, block N + i compares y_i with all x_j.

    ``inner`` takes one encoder, or a tuple of two encoders, one per view. The inputs are a pair:
    all first views and all second views.

    Args:
        num_samples: N, the number of pairs.
        temperature: T, or the initial value of a learned temperature.
        two_way: whether to compare in both directions, which gives m = 2 N blocks.
        learned: None keeps T fixed, "common" learns one temperature, and "individual" learns one
            per anchor. A learned T_i is a second component of u, at least ``temperature / 10``,
            and f(u) = T_i (log(eps + u) + ``radius``). Pass ``objective.parameters()`` to the
            optimizer too, and save ``objective.state_dict()`` in checkpoints. With "individual" a
            step costs O(m), as for any parameter of size m.
        radius: the radius of the KL ball of learned temperatures. A larger radius gives lower
            temperatures.
        eps: a number that is added to u; values of u far below it count as 0. With
            eps = 1 / (N - 1) the own pair is among the partners, as in InfoNCE of all N pairs.

    Examples:
        >>> objective = GlobalContrastive(100, temperature=0.1)
        >>> objective.num_blocks
        200
        >>> GlobalContrastive(2, temperature=0.5).exact(torch.eye(2), torch.eye(2))
        tensor(-1.)
    """

    num_views = 2

    def __init__(
        self,
        num_samples: int,
        *,
        temperature: float,
        two_way: bool = True,
        learned: Literal["common", "individual"] | None = None,
        radius: float = 0.5,
        eps: float = 1e-14,
    ) -> None:
        super().__init__()
        check_positive(temperature=temperature, radius=radius, eps=eps)
        if learned not in (None, "common", "individual"):
            raise ValueError(f'learned must be None, "common" or "individual", got {learned!r}')
        self.two_way = two_way
        self.temperature = float(temperature)
        self.radius = radius
        self.eps = eps
        self.inner_dim = 1 if learned is None else 2
        self.scaled_dim = 1
        self._build(num_samples)
        self.temperatures: nn.Parameter | None = None
        if learned is not None:
            count = self.num_blocks if learned == "individual" else 1
            self.temperatures = nn.Parameter(torch.full((count,), self.temperature))

    def _build(self, num_samples: int) -> None:
        self.num_samples = self.inner_size = whole("num_samples", num_samples)
        if self.num_samples < 2:
            raise ValueError(
                f"num_samples must be at least 2, got {num_samples}: an anchor is compared with "
                "other pairs"
            )
        self.num_blocks = 2 * self.num_samples if self.two_way else self.num_samples

    def on(self, num_samples: int) -> Self:
        """Return the same objective for other pairs.

        Individual temperatures belong to their pairs, so the number of pairs must then be equal.
        """
        individual = self.temperatures is not None and len(self.temperatures) > 1
        if individual and num_samples != self.num_samples:
            raise ValueError(
                f"individual temperatures belong to {self.num_samples} pairs, got {num_samples}"
            )
        other = unlocked(self)
        other._build(num_samples)
        return other

    def among(self, index: Tensor) -> ViewBatch:
        """Return these pairs compared with one another; a single pair gives no block."""
        blocks = index if len(index) > 1 else index[:0]
        if self.two_way:
            blocks = torch.cat([blocks, blocks + self.num_samples])
        pairs = blocks % self.num_samples
        return ViewBatch(
            blocks,
            index,
            anchors=torch.arange(len(index)).repeat(2)[: len(blocks)],
            backward=blocks >= self.num_samples,
            partners=torch.arange(len(index)),
            # The others of the batch stand for all other pairs: a mean over len(index) - 1 of them.
            weights=(pairs[:, None] != index).double() / max(len(index) - 1, 1),
        )

    def _batch(self, blocks: Tensor, partners: Tensor) -> ViewBatch:
        pairs = blocks % self.num_samples
        # g_i is a mean over the N - 1 other pairs, but partners are drawn from all N, and the own
        # pair gets the weight 0 below. The factor N / (N - 1) makes the estimate unbiased.
        share = self.num_samples / ((self.num_samples - 1) * len(partners))
        weights = torch.full((len(blocks), len(partners)), share, dtype=torch.float64)
        return ViewBatch(
            blocks,
            torch.cat([pairs, partners]),
            anchors=torch.arange(len(blocks)),
            backward=blocks >= self.num_samples,
            partners=torch.arange(len(blocks), len(blocks) + len(partners)),
            weights=weights.masked_fill(pairs[:, None] == partners, 0),
        )

    def inner(self, model: Callable[[Tensor], Any] | tuple[Any, Any], batch: ViewBatch) -> Probe:
        """Return the mean over the sampled pairs, in the direction of each block."""
        first, second = model if isinstance(model, tuple) else (model, model)
        views = batch.inputs
        if not isinstance(views, tuple | list) or len(views) != 2:
            raise ValueError("inputs must be a pair, of all first and of all second views")
        x, y = widened(first(views[0])), widened(second(views[1]))
        # In half precision, exponents (s - s_own) / T of a low temperature would lose their digits.
        with torch.autocast(x.device.type, enabled=False):
            x, y = normalize(x, dim=1), normalize(y, dim=1)
            backward = batch.backward.unsqueeze(1)
            anchors = torch.where(backward, y[batch.anchors], x[batch.anchors])
            others = torch.where(backward, x[batch.anchors], y[batch.anchors])
            # The cosine of an anchor and its own partner, which all exponents are relative to.
            own = (anchors * others).sum(1)
            cosines = torch.where(
                backward, anchors @ x[batch.partners].T, anchors @ y[batch.partners].T
            )
            return self.compare(batch.blocks, own, cosines, batch.weights, len(batch.partners))

    def compare(
        self, blocks: Tensor, own: Tensor, cosines: Tensor, weights: Tensor, samples: int
    ) -> Probe:
        """Return a probe of the means over partners, computed from cosines.

        Args:
            blocks: (B1,), the probed blocks.
            own: (B1,), the cosine of each anchor and its own partner.
            cosines: (B1, k), the cosines of each anchor and the other partners.
            weights: (B1, k), the weight of each other partner in the mean.
            samples: the number of partners behind each value.

        Examples:
            >>> objective = GlobalContrastive(9, temperature=1.0)
            >>> probe = objective.compare(torch.tensor([4]), torch.tensor([0.5]),
            ...     torch.tensor([[0.5, 0.5]]), torch.tensor([[0.5, 0.5]]), 2)
            >>> probe.values, probe.log_scale
            (tensor([[1.]]), tensor([0.]))
        """
        temperature = self._temperature(blocks)
        exponents = (cosines - own.unsqueeze(1)) / temperature
        terms, scale = exponentials(exponents, weights)
        columns, noise = [terms.sum(1)], [error_of_means(terms.detach(), weights, samples)]
        if not isinstance(temperature, float):
            # The temperature is known exactly, so its standard error is 0.
            columns.append(temperature.squeeze(1))
            noise.append(torch.zeros_like(noise[0]))
        values = torch.stack(columns, dim=1)
        return Probe(blocks, values, samples, log_scale=scale, noise=torch.stack(noise, dim=1))

    def exact(self, first: Tensor, second: Tensor) -> Tensor:
        """Return F of the embeddings of all pairs, differentiable, computed in float64.

        Args:
            first: (N, d), the embeddings of the first views. They are normalized here.
            second: (N, d), the embeddings of the second views.
        """
        count = self.num_samples
        first, second = tensor("first", first), tensor("second", second)
        for name, view in (("first", first), ("second", second)):
            if view.ndim != 2 or len(view) != count:
                raise ValueError(f"{name} must have shape ({count}, d), got {tuple(view.shape)}")
        if first.shape != second.shape:
            raise ValueError(
                f"second must have the shape of first, {tuple(first.shape)}, got "
                f"{tuple(second.shape)}"
            )
        x, y = widened(first).double(), widened(second).double()
        check_embeddings(first=x, second=y)
        x, y = normalize(x, dim=1), normalize(y, dim=1)
        own = (x * y).sum(1)
        ways = ((x, y, 0), (y, x, count))[: 2 if self.two_way else 1]

        def value(rows: Tensor) -> Tensor:
            total = x.new_zeros(())
            for anchors, others, shift in ways:
                blocks = rows + shift
                temperature = self._temperature(blocks)
                exponents = (anchors[rows] @ others.T - own[rows, None]) / temperature
                own_pair = torch.zeros_like(exponents, dtype=torch.bool)
                own_pair[torch.arange(len(rows)), rows] = True
                # The row is represented as u = 1 with all of it in the log-scale, so that nothing
                # overflows at low temperatures.
                logs = exponents.masked_fill(own_pair, -torch.inf).logsumexp(1)
                u = [torch.ones_like(logs)]
                if not isinstance(temperature, float):
                    u.append(temperature.squeeze(1).double())
                scale = logs - torch.tensor(count - 1.0, dtype=logs.dtype).log()
                total = total + self.scaled_outer(torch.stack(u, dim=1), scale, blocks).sum()
            return total

        total = sum_over_anchors(count, x.device, value)
        return (total / self.num_blocks).to(torch.promote_types(first.dtype, torch.float32))

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Return T log(eps + u), or T_i (log(eps + u) + radius) if T_i is learned."""
        # log(eps + u) in the log domain: u itself may not fit into a float.
        logarithm = torch.logaddexp(
            u[:, 0].log() + log_scale, torch.full_like(log_scale, self.eps).log()
        )
        if self.temperatures is None:
            return self.temperature * logarithm
        return u[:, 1] * (logarithm + self.radius)

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Keep u and the learned temperatures positive."""
        u = u.clone()
        u[:, 0].clamp_(min=torch.finfo(u.dtype).tiny)
        if self.temperatures is not None:
            u[:, 1].clamp_(min=self.temperature / 10)
        return u

    def supported(self, u: Tensor, fresh: Tensor, fraction: float | Tensor) -> Tensor:
        """Bound the mean alone: the temperature is not a sum of positive terms."""
        return torch.cat([torch.maximum(u[:, :1], fraction * fresh[:, :1]), u[:, 1:]], dim=1)

    def _temperature(self, blocks: Tensor) -> Tensor | float:
        if self.temperatures is None:
            return self.temperature
        every = self.temperatures
        chosen = every[blocks] if len(every) > 1 else every.expand(len(blocks))
        # The gradient ignores the bound, so that a temperature below it can rise again.
        bounded = chosen + (chosen.clamp(min=self.temperature / 10) - chosen).detach()
        return bounded.unsqueeze(1)
