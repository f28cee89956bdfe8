"""Distributionally robust over groups: one block per group, with its mean loss as inner value."""

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from fcco.objectives.domains import check_positive
from fcco.objectives.surrogates import exp_then_linear
from fcco.problem.batches import GroupBatch
from fcco.problem.objective import Objective
from fcco.problem.probe import Probe

__all__ = ["GroupCVaR", "GroupDRO"]

SampleLoss = Callable[[Any, Tensor], Tensor]
"""(outputs, targets) to one loss per sample."""


def _each_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, targets, reduction="none")


class GroupDRO(Objective):
    """KL-regularized worst group: u = mean loss of the group, f(u) = lambda (exp(u/lambda) - 1).

    lambda log(1 + F / lambda) is the soft maximum of the losses of the groups, see ``risk``. As
    lambda goes to infinity it approaches their mean, as lambda goes to 0 the worst loss.

    Block i is group i.

    Args:
        num_groups: m.
        temperature: lambda.
        loss: (outputs, targets) to one loss per sample; by default cross-entropy.
        cap: beyond u = cap the exponential continues along its tangent; by default 10 lambda.

    Examples:
        >>> GroupDRO(4).outer(torch.zeros(1, 1), torch.tensor([0]))
        tensor([0.])
    """

    inner_dim = 1

    def __init__(
        self,
        num_groups: int,
        temperature: float = 1.0,
        loss: SampleLoss = _each_cross_entropy,
        cap: float | None = None,
    ) -> None:
        check_positive(
            num_groups=num_groups, temperature=temperature, cap=1.0 if cap is None else cap
        )
        self.num_blocks = num_groups
        self.temperature = temperature
        self.loss = loss
        self.cap = 10 * temperature if cap is None else cap

    def inner(self, model: Any, batch: GroupBatch) -> Probe:
        """The mean loss of each group's samples."""
        losses, noise = _mean_loss(self.loss, model, batch)
        return Probe(batch.blocks, losses[:, None], batch.counts, noise=noise[:, None])

    def on(self, data: Any) -> Self:
        """With the groups of ``data``."""
        return self._with(num_blocks=data.num_blocks)

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """The exponential, shifted to 0 at u = 0."""
        heat = self.temperature
        return heat * (exp_then_linear(u[:, 0] / heat, self.cap / heat) - 1)

    def risk(self, value: float) -> float:
        """The soft maximum of the losses of the groups, from the value of the objective.

        Examples:
            >>> round(GroupDRO(4, temperature=2.0).risk(0.0), 6)
            0.0
        """
        heat = self.temperature
        return heat * float(torch.tensor(value / heat, dtype=torch.float64).log1p())


class GroupCVaR(nn.Module, Objective):
    """The mean loss of the worst ``fraction`` of the groups, with a smoothed hinge.

    min over s of s + mean_i max(L_i - s, 0) / fraction. The threshold s is learned like a weight
    (pass ``objective.parameters()`` to the optimizer too, and save ``objective.state_dict()`` in
    checkpoints), and is the second component of u:

        u = (L_i, s),  f(u) = u_2 + T softplus((u_1 - u_2) / T) / fraction.

    Block i is group i.

    Args:
        num_groups: m.
        fraction: the fraction of the groups that counts, in (0, 1].
        temperature: T, the width of the smoothing.
        loss: (outputs, targets) to one loss per sample; by default cross-entropy.

    Examples:
        >>> GroupCVaR(4, fraction=0.5).threshold
        Parameter containing:
        tensor(0., requires_grad=True)
    """

    inner_dim = 2

    def __init__(
        self,
        num_groups: int,
        fraction: float = 0.5,
        temperature: float = 0.1,
        loss: SampleLoss = _each_cross_entropy,
    ) -> None:
        super().__init__()
        check_positive(num_groups=num_groups, temperature=temperature)
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction must lie in (0, 1], got {fraction}")
        self.num_blocks = num_groups
        self.fraction = fraction
        self.temperature = temperature
        self.loss = loss
        self.threshold = nn.Parameter(torch.zeros(()))

    def inner(self, model: Any, batch: GroupBatch) -> Probe:
        """The mean loss of each group's samples, and the threshold."""
        losses, noise = _mean_loss(self.loss, model, batch)
        values = torch.stack([losses, self.threshold.to(losses.dtype).expand_as(losses)], dim=1)
        noise = torch.stack([noise, torch.zeros_like(noise)], dim=1)
        return Probe(batch.blocks, values, batch.counts, noise=noise)

    def on(self, data: Any) -> Self:
        """With the groups of ``data``."""
        return self._with(num_blocks=data.num_blocks)

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """The threshold and the smoothed excess over it."""
        heat = self.temperature
        return u[:, 1] + heat * softplus((u[:, 0] - u[:, 1]) / heat) / self.fraction


def _mean_loss(loss: SampleLoss, model: Any, batch: GroupBatch) -> tuple[Tensor, Tensor]:
    """The mean loss of each block, and its standard error."""
    if batch.targets is None:
        raise ValueError("a loss needs GroupBatch.targets")
    losses = loss(model(batch.inputs), batch.targets)
    if losses.shape != batch.owner.shape:
        raise ValueError(
            f"loss must give one number per sample, shape {tuple(batch.owner.shape)}, got "
            f"{tuple(losses.shape)}: reduction='none'?"
        )
    means = batch.mean(losses)
    return means, batch.noise(losses, means)
