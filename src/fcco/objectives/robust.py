"""Distributional robustness over samples: scores are losses, and there is only one block."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fcco.objectives.domains import check_positive
from fcco.objectives.pooled import PooledObjective
from fcco.objectives.sampling import exponential_probe, standard_error
from fcco.objectives.score import ScoreObjective, partner_scores, read_outputs
from fcco.problem.batches import PairBatch
from fcco.problem.given import whole
from fcco.problem.probe import Probe
from fcco.problem.scaled import ScaledObjective

__all__ = ["DRO", "CVaR"]


class _OneBlock(PooledObjective, ScoreObjective):
    """Base class of objectives with one block, whose inner value is a mean over all samples."""

    num_blocks = 1

    def _build(self, num_samples: Any) -> None:
        self.num_samples = whole("num_samples", num_samples)
        check_positive(num_samples=self.num_samples)

    def metric(self, scores: Any, weight: Any = None) -> float:
        """Raise a ``TypeError``: the objective is the risk itself, see ``exact``."""
        raise TypeError(f"{type(self).__name__} stands for no metric: use exact(scores)")

    def spans(self, size: int) -> Sequence[Tensor]:
        """Divide the samples into chunks, in their order."""
        return torch.split(torch.arange(self.num_samples), size)

    def chunk(self, span: Tensor) -> PairBatch:
        """Return a batch of the given samples."""
        return self.among(span)

    def among(self, index: Tensor) -> PairBatch:
        """Return a batch whose inner value is the mean over the given samples."""
        return self._batch(torch.zeros(1, dtype=torch.int64), index)

    def _batch(self, blocks: Tensor, partners: Tensor) -> PairBatch:
        count = len(partners)
        weights = torch.full((1, 1, count), 1 / count, dtype=torch.float64)
        places = torch.arange(count)
        return PairBatch(blocks, partners, partners=places, weights=weights, samples=count)


class DRO(_OneBlock, ScaledObjective):
    """A soft maximum of the losses of all samples, the KL-regularized robust risk.

        F = T log((1/N) sum_i exp(l_i / T)).

    It approaches the mean loss as T goes to infinity, and the largest loss as T goes to 0. The
    scores are losses, one per sample. The only block has u = mean exp(l / T) and f(u) = T log u.

    Args:
        num_samples: N, the number of samples.
        temperature: T.

    Examples:
        >>> DRO(2, temperature=1.0).exact(torch.tensor([1.0, 1.0]))
        tensor(1.)
    """

    inner_dim = 1

    def __init__(self, num_samples: int, *, temperature: float) -> None:
        check_positive(temperature=temperature)
        self.temperature = temperature
        self._build(num_samples)

    def _build(self, num_samples: Any) -> None:
        super()._build(num_samples)
        self.inner_size = self.num_samples

    def inner(self, model: Any, batch: PairBatch) -> Probe:
        """Return the mean over the sampled losses."""
        losses = partner_scores(read_outputs(model, batch, 1), batch)
        return exponential_probe(losses / self.temperature, batch)

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Return T log u."""
        return self.temperature * (u[:, 0].log() + log_scale)

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Keep u positive, so that its logarithm is finite."""
        return u.clamp(min=torch.finfo(u.dtype).tiny)

    def _value(self, h: Tensor, weight: Tensor | None) -> Tensor:
        exponents = h[:, 0] / self.temperature
        if weight is None:
            return self.temperature * (exponents.logsumexp(0) - math.log(len(h)))
        kept = weight > 0
        if not kept.any():
            return 0 * h.sum()
        # log of sum_i w_i exp(l_i / T): weights enter as logarithms, so that nothing overflows.
        logs = (exponents[kept] + weight[kept].log()).logsumexp(0)
        return self.temperature * (logs - weight.sum().log())


class CVaR(nn.Module, _OneBlock):
    """The mean of the largest losses, those of a given fraction of all samples.

        F = min_s s + (1/N) sum_i max(l_i - s, 0) / fraction.

    The scores are losses, one per sample. ``exact`` and ``fcco.losses.CVaRLoss`` minimize over the
    threshold s themselves. For an optimizer, s is a learned parameter: pass
    ``objective.parameters()`` to it too, and save ``objective.state_dict()`` in checkpoints. The
    only block has u = (mean max(l - s, 0), s) and f(u) = u_2 + u_1 / fraction.

    Args:
        num_samples: N, the number of samples.
        fraction: the fraction of the samples that counts, in (0, 1].

    Examples:
        >>> CVaR(4, fraction=0.5).exact(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        tensor(3.5000)
    """

    inner_dim = 2

    def __init__(self, num_samples: int, *, fraction: float) -> None:
        super().__init__()
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction must lie in (0, 1], got {fraction}")
        self.fraction = fraction
        self.threshold = nn.Parameter(torch.zeros(()))
        self._build(num_samples)

    def inner(self, model: Any, batch: PairBatch) -> Probe:
        """Return the mean excess of the sampled losses over the threshold, and the threshold."""
        losses = partner_scores(read_outputs(model, batch, 1), batch)
        threshold = self.threshold.to(losses.dtype)
        terms = batch.weights[0].to(losses.dtype) * (losses - threshold).clamp(min=0)
        # The threshold is a component of u, so that its gradient flows through the probe.
        values = torch.stack([terms.sum(1), threshold.expand(1)], dim=1)
        noise = standard_error(terms.detach(), batch.samples)
        noise = torch.stack([noise, torch.zeros_like(noise)], dim=1)
        return Probe(batch.blocks, values, batch.samples, noise=noise)

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Return the threshold plus the excess over it."""
        return u[:, 1] + u[:, 0] / self.fraction

    def _value(self, h: Tensor, weight: Tensor | None) -> Tensor:
        losses, order = h[:, 0].sort(descending=True)
        # The minimum over s is attained at a quantile of the losses, where F is a plain mean.
        w = torch.ones_like(losses) if weight is None else weight[order]
        total = self.fraction * w.sum()
        if not total > 0:
            return 0 * h.sum()
        # The largest losses count fully until the fraction is used up, the next one in part.
        part = (total - (w.cumsum(0) - w)).clamp(min=0)
        return (torch.minimum(part, w) * losses).sum() / total
