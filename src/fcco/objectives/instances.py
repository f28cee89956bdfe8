"""Multiple-instance learning: bags have labels, their instances do not. One block per bag."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fcco.objectives.domains import check_positive
from fcco.objectives.grouped import GroupObjective
from fcco.objectives.sampling import grouped_exponentials
from fcco.objectives.score import widened
from fcco.objectives.structure import Column
from fcco.problem.batches import GroupBatch
from fcco.problem.given import structure
from fcco.problem.probe import Probe
from fcco.problem.scaled import ScaledObjective

__all__ = ["AttentionPooling", "SoftmaxPooling"]


class _Bags(GroupObjective, ScaledObjective):
    """Base class that holds the labels of the bags and the bag of each instance."""

    def _build(self, bags: Any, labels: Any) -> None:
        self._set_groups(bags, name="bags")
        # The largest bag bounds the share 1/n of a single instance in a row.
        self.inner_size = int(self.sizes.max())
        self.labels = structure("labels", labels, None, kind="binary")
        if len(self.labels) != self.num_blocks:
            raise ValueError(f"{self.num_blocks} bags have {len(self.labels)} labels")
        self._labels = Column(self.labels)


class SoftmaxPooling(_Bags):
    """Cross-entropy of bags whose logit is a soft maximum of their instances' scores.

        u = mean over the bag of exp(h(x) / T),  f(u) = loss(sigmoid(T log u), y).

    Block i is bag i.

    Args:
        bags: (N,), the bag of each instance, numbered from 0.
        labels: (m,), the label of each bag, 0 or 1.
        temperature: T. With a small value only the highest score of a bag counts.

    Examples:
        >>> objective = SoftmaxPooling(torch.tensor([0, 0, 1]), torch.tensor([0, 1]))
        >>> objective.outer(torch.ones(2, 1), torch.tensor([0, 1]))  # logit 0 of either label
        tensor([0.6931, 0.6931])
    """

    inner_dim = 1

    def __init__(self, bags: Any, labels: Any, *, temperature: float = 1.0) -> None:
        check_positive(temperature=temperature)
        self.temperature = temperature
        self._build(bags, labels)

    def inner(self, model: Any, batch: GroupBatch) -> Probe:
        """Return the mean over each bag's sampled instances."""
        exponents = _one_score(model(batch.inputs)) / self.temperature
        terms, scale = grouped_exponentials(exponents, batch)
        values = batch.mean(terms[:, None])
        noise = batch.noise(terms[:, None], values)
        return Probe(batch.blocks, values, batch.counts, log_scale=scale, noise=noise)

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Return the cross-entropy of the pooled logit."""
        # T log u stays finite even if u = exp(log_scale) * mantissa itself overflows.
        logits = self.temperature * (u[:, 0].log() + log_scale)
        return _bag_loss(logits, self._labels, blocks)

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Keep u positive, so that its logarithm is finite."""
        return u.clamp(min=torch.finfo(u.dtype).tiny)


class AttentionPooling(_Bags):
    """Cross-entropy of bags whose logit is the mean of their scores, weighted by attention.

        u = (mean e^a(x) h(x), mean e^a(x)),  f(u) = loss(sigmoid(u_1 / u_2), y),

    where the score h and the attention a are the two columns of the model's output.

    Block i is bag i.

    Args:
        bags: (N,), the bag of each instance, numbered from 0.
        labels: (m,), the label of each bag, 0 or 1.

    Examples:
        >>> objective = AttentionPooling(torch.tensor([0, 0]), torch.tensor([1]))
        >>> objective.outer(torch.tensor([[0.0, 2.0]]), torch.tensor([0]))
        tensor([0.6931])
    """

    inner_dim = 2

    def __init__(self, bags: Any, labels: Any) -> None:
        self._build(bags, labels)

    def inner(self, model: Any, batch: GroupBatch) -> Probe:
        """Return both means over each bag's sampled instances."""
        outputs = widened(model(batch.inputs))
        if outputs.ndim != 2 or outputs.shape[1] != 2:
            raise ValueError(
                "AttentionPooling needs a model with two outputs, score and attention; got shape "
                f"{tuple(outputs.shape)}"
            )
        terms, scale = grouped_exponentials(outputs[:, 1], batch)
        # Only the attention is exponentiated. Score times attention has the same log-scale, so the
        # quotient u_1 / u_2 does not depend on it.
        terms = torch.stack([terms * outputs[:, 0], terms], dim=1)
        values = batch.mean(terms)
        noise = batch.noise(terms, values)
        return Probe(batch.blocks, values, batch.counts, log_scale=scale, noise=noise)

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Return the cross-entropy of the pooled logit; the scale cancels in it."""
        return _bag_loss(u[:, 0] / u[:, 1], self._labels, blocks)

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Keep the mean attention at least 1e-30, so that the quotient stays finite."""
        return torch.stack([u[:, 0], u[:, 1].clamp(min=1e-30)], dim=1)

    def supported(self, u: Tensor, fresh: Tensor, fraction: float | Tensor) -> Tensor:
        """Bound the attention alone: the weighted score may have any sign."""
        return torch.cat([u[:, :1], torch.maximum(u[:, 1:], fraction * fresh[:, 1:])], dim=1)


def _one_score(outputs: Tensor) -> Tensor:
    outputs = outputs.squeeze(1) if outputs.ndim == 2 and outputs.shape[1] == 1 else outputs
    if outputs.ndim != 1:
        raise ValueError(
            f"the model must give one score per sample, got outputs of shape {tuple(outputs.shape)}"
        )
    return widened(outputs)


def _bag_loss(logits: Tensor, labels: Column, blocks: Tensor) -> Tensor:
    targets = labels(blocks, logits)
    return binary_cross_entropy_with_logits(logits, targets, reduction="none")
