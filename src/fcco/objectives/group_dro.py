"""Distributional robustness over groups: one block per group, with its mean loss as inner value."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from fcco.objectives.domains import check_positive
from fcco.objectives.grouped import GroupObjective
from fcco.problem.batches import GroupBatch
from fcco.problem.probe import Probe

__all__ = ["GroupCVaR", "GroupDRO"]

SampleLoss = Callable[[Any, Any], Tensor]
"""A function from (outputs, targets) to one loss per sample."""


def _each_cross_entropy(outputs: Tensor, targets: Tensor | None) -> Tensor:
    if targets is None:
        raise ValueError("cross-entropy needs targets: give them to the objective, or another loss")
    return cross_entropy(outputs, targets, reduction="none")


class GroupDRO(GroupObjective):
    """A smooth form of the worst mean loss of a group, regularized by the KL divergence.

    The inner value u of block i is the mean loss of group i, and f(u) = T (exp(u / T) - 1). The
    soft maximum of the groups' losses is T log(1 + F / T), which ``risk`` returns. It approaches
    their mean as T goes to infinity, and the worst loss as T goes to 0.

    Args:
        groups: (N,), the group of each sample, numbered from 0.
        targets: (N, ...), the target of each sample, which is passed to ``loss``; or None.
        temperature: T.
        loss: a function from (outputs, targets) to one loss per sample, by default cross-entropy.
        cap: the value of u from which the exponential continues along its tangent, by default
            10 T.

    Examples:
        >>> objective = GroupDRO(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]), temperature=1.0)
        >>> objective.outer(torch.zeros(1, 1), torch.tensor([0]))
        tensor([0.])
    """

    inner_dim = 1

    def __init__(
        self,
        groups: Any,
        targets: Any = None,
        *,
        temperature: float,
        loss: SampleLoss = _each_cross_entropy,
        cap: float | None = None,
    ) -> None:
        check_positive(temperature=temperature, cap=1.0 if cap is None else cap)
        self.temperature = temperature
        self.loss = loss
        self.cap = 10 * float(temperature) if cap is None else cap
        self._build(groups, targets)

    def inner(self, model: Any, batch: GroupBatch) -> Probe:
        """Return the mean loss of each group's samples."""
        losses, noise = _mean_loss(self.loss, model, batch)
        return Probe(batch.blocks, losses[:, None], batch.counts, noise=noise[:, None])

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Return T (exp(u / T) - 1), continued along its tangent beyond ``cap``."""
        x, limit = u[:, 0] / self.temperature, self.cap / self.temperature
        # At high temperatures x is small, and exp(x) - 1 would lose all digits in float32.
        # The tangent at the cap is exp(limit) (1 + x - limit) - 1. It is written as exp(below) - 1
        # plus the slope exp(below) times what exceeds the cap.
        # At the cap the slope of clamp depends on the version of torch, so a mask takes its place.
        below = x.masked_fill(x > limit, limit)
        return self.temperature * (below.expm1() + below.exp() * (x - limit).relu())

    def risk(self, value: float) -> float:
        """Return the soft maximum of the groups' losses, given the value of the objective.

        It is the loss u for which the objective has this value if all groups have the loss u. So it
        always lies between the least and the largest loss of a group. Below ``cap`` it equals
        T log(1 + value / T).

        Examples:
            >>> objective = GroupDRO(torch.arange(2), temperature=0.1)
            >>> value = float(objective.outer(torch.full((1, 1), 2.3), torch.tensor([0])))
            >>> round(objective.risk(value), 4)  # beyond the cap, at 1
            2.3
        """
        ratio = value / self.temperature
        if ratio <= -1:
            raise ValueError(
                f"value must be above -temperature, {-self.temperature:g}, got {value:g}: it "
                "rounds to this number if all losses are very negative"
            )
        limit = self.cap / self.temperature
        if math.log1p(ratio) <= limit:
            return self.temperature * math.log1p(ratio)
        # Solve the equation of the tangent, value / T + 1 = exp(limit) (1 + (u - cap) / T).
        return self.cap + self.temperature * ((ratio + 1) * math.exp(-limit) - 1)


class GroupCVaR(nn.Module, GroupObjective):
    """The mean loss of the worst ``fraction`` of the groups, with a smoothed hinge.

    With L_i the mean loss of group i, this mean is the minimum over s of
    s + mean_i max(L_i - s, 0) / fraction. The threshold s is a learned parameter and the second
    component of u:

        u = (L_i, s),  f(u) = u_2 + T softplus((u_1 - u_2) / T) / fraction.

    Pass ``objective.parameters()`` to the optimizer too, and save ``objective.state_dict()`` in
    checkpoints. Block i is group i.

    Args:
        groups: (N,), the group of each sample, numbered from 0.
        targets: (N, ...), the target of each sample, which is passed to ``loss``; or None.
        fraction: the fraction of the groups that counts, in (0, 1].
        temperature: T, the width of the smoothing.
        loss: a function from (outputs, targets) to one loss per sample, by default cross-entropy.

    Examples:
        >>> GroupCVaR(torch.tensor([0, 1]), fraction=0.5).threshold
        Parameter containing:
        tensor(0., requires_grad=True)
    """

    inner_dim = 2

    def __init__(
        self,
        groups: Any,
        targets: Any = None,
        *,
        fraction: float,
        temperature: float = 0.1,
        loss: SampleLoss = _each_cross_entropy,
    ) -> None:
        super().__init__()
        check_positive(temperature=temperature)
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction must lie in (0, 1], got {fraction}")
        self.fraction = fraction
        self.temperature = temperature
        self.loss = loss
        self.threshold = nn.Parameter(torch.zeros(()))
        self._build(groups, targets)

    def inner(self, model: Any, batch: GroupBatch) -> Probe:
        """Return the mean loss of each group's samples, and the threshold."""
        losses, noise = _mean_loss(self.loss, model, batch)
        # The threshold is a component of u, so that its gradient flows through the probe.
        values = torch.stack([losses, self.threshold.to(losses.dtype).expand_as(losses)], dim=1)
        noise = torch.stack([noise, torch.zeros_like(noise)], dim=1)
        return Probe(batch.blocks, values, batch.counts, noise=noise)

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Return the threshold plus the smoothed excess over it."""
        width = self.temperature
        return u[:, 1] + width * softplus((u[:, 0] - u[:, 1]) / width) / self.fraction


def _mean_loss(loss: SampleLoss, model: Any, batch: GroupBatch) -> tuple[Tensor, Tensor]:
    """Return the mean loss of each block, and its standard error."""
    losses = loss(model(batch.inputs), batch.targets)
    if losses.shape != batch.owner.shape:
        raise ValueError(
            f"loss must give one number per sample, shape {tuple(batch.owner.shape)}, got "
            f"{tuple(losses.shape)}: reduction='none'?"
        )
    means = batch.mean(losses)
    return means, batch.noise(losses, means)
