"""Multiple instances: one block per bag; bags have labels, their instances do not."""

from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fcco.objectives.domains import Column, check_positive
from fcco.objectives.scores import grouped_exponentials, scores_of, widened
from fcco.problem.batches import GroupBatch
from fcco.problem.probe import Probe
from fcco.problem.scaled import ScaledObjective

__all__ = ["AttentionPooling", "SoftmaxPooling"]


class SoftmaxPooling(ScaledObjective):
    """The logit of a bag is a soft maximum of its instances' scores; the loss is cross-entropy.

        u = mean over the bag of exp(h(x) / lambda),  f(u) = loss(sigmoid(lambda log u), y).

    Block i is bag i.

    Args:
        labels: (m,), 0 or 1.
        max_size: an upper bound on the instances in a bag.
        temperature: lambda; near 0 only the highest score counts.

    Examples:
        >>> objective = SoftmaxPooling(torch.tensor([0, 1]), max_size=5)
        >>> objective.outer(torch.ones(2, 1), torch.tensor([0, 1]))  # logit 0 of either label
        tensor([0.6931, 0.6931])
    """

    inner_dim = 1

    def __init__(self, labels: Tensor, max_size: int, temperature: float = 1.0) -> None:
        check_positive(max_size=max_size, temperature=temperature)
        self.num_blocks = len(labels)
        self.inner_size = max_size
        self.temperature = temperature
        self._labels = _checked(labels)

    def inner(self, model: Any, batch: GroupBatch) -> Probe:
        """The mean over each bag's sampled instances."""
        exponents = scores_of(model, batch.inputs) / self.temperature
        terms, scale = grouped_exponentials(exponents, batch)
        values = batch.mean(terms[:, None])
        noise = batch.noise(terms[:, None], values)
        return Probe(batch.blocks, values, batch.counts, log_scale=scale, noise=noise)

    def on(self, data: Any) -> Self:
        """With the bags of ``data``, if its targets are the labels of the bags."""
        return self._with(**_bags(data))

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Cross-entropy of the pooled logit."""
        logits = self.temperature * (u[:, 0].log() + log_scale)
        return _bag_loss(logits, self._labels, blocks)

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """u is positive."""
        return u.clamp(min=torch.finfo(u.dtype).tiny)


class AttentionPooling(ScaledObjective):
    """The logit of a bag is the mean score of its instances, weighted by attention.

        u = (mean e^a(x) h(x), mean e^a(x)),  f(u) = loss(sigmoid(u_1 / u_2), y),

    where (h, a) are the two columns of the model's output.

    Block i is bag i.

    Args:
        labels: (m,), 0 or 1.
        max_size: an upper bound on the instances in a bag.

    Examples:
        >>> objective = AttentionPooling(torch.tensor([1]), max_size=5)
        >>> objective.outer(torch.tensor([[0.0, 2.0]]), torch.tensor([0]))
        tensor([0.6931])
    """

    inner_dim = 2

    def __init__(self, labels: Tensor, max_size: int) -> None:
        check_positive(max_size=max_size)
        self.num_blocks = len(labels)
        self.inner_size = max_size
        self._labels = _checked(labels)

    def inner(self, model: Any, batch: GroupBatch) -> Probe:
        """Both means over each bag's sampled instances."""
        outputs = widened(model(batch.inputs))
        if outputs.ndim != 2 or outputs.shape[1] != 2:
            raise ValueError(
                "AttentionPooling needs a model with two outputs, score and attention; got shape "
                f"{tuple(outputs.shape)}"
            )
        terms, scale = grouped_exponentials(outputs[:, 1], batch)
        terms = torch.stack([terms * outputs[:, 0], terms], dim=1)
        values = batch.mean(terms)
        noise = batch.noise(terms, values)
        return Probe(batch.blocks, values, batch.counts, log_scale=scale, noise=noise)

    def on(self, data: Any) -> Self:
        """With the bags of ``data``, if its targets are the labels of the bags."""
        return self._with(**_bags(data))

    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Cross-entropy of the pooled logit, which does not depend on the scale."""
        return _bag_loss(u[:, 0] / u[:, 1], self._labels, blocks)

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """The attention is positive; the bound 1e-30 keeps the quotient finite."""
        return torch.stack([u[:, 0], u[:, 1].clamp(min=1e-30)], dim=1)

    def supported(self, u: Tensor, fresh: Tensor, fraction: float | Tensor) -> Tensor:
        """The attention is positive; the weighted score may have any sign."""
        return torch.cat([u[:, :1], torch.maximum(u[:, 1:], fraction * fresh[:, 1:])], dim=1)


def _bags(data: Any) -> dict[str, Any]:
    """What an objective takes from a data set whose targets are the labels of the bags."""
    if data.targets is None:
        return {}
    targets = data.targets.cpu()
    labels = torch.zeros(data.num_blocks, dtype=targets.dtype).index_copy(0, data.groups, targets)
    if not labels[data.groups].equal(targets):
        raise ValueError("targets differ within a bag: each instance has the label of its bag")
    sizes = {"num_blocks": data.num_blocks, "inner_size": int(data.sizes.max())}
    return sizes | {"_labels": _checked(labels)}


def _checked(labels: Tensor) -> Column:
    if labels.ndim != 1 or not ((labels == 0) | (labels == 1)).all():
        raise ValueError("labels must be 0 or 1, one per bag")
    return Column(labels)


def _bag_loss(logits: Tensor, labels: Column, blocks: Tensor) -> Tensor:
    targets = labels(blocks, logits)
    return binary_cross_entropy_with_logits(logits, targets, reduction="none")
