"""Distributionally robust losses over groups, on top of any loss per sample."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fcco.losses.batch import first_ten, read_index
from fcco.losses.exchange import exchange
from fcco.losses.row_loss import RowLoss
from fcco.methods import Beta
from fcco.objectives.domains import check_positive
from fcco.objectives.group_dro import GroupCVaR, GroupDRO
from fcco.problem.batches import GroupBatch
from fcco.problem.given import absent, whole
from fcco.problem.probe import Probe

__all__ = ["GroupCVaRLoss", "GroupDROLoss"]


class _GroupLoss(RowLoss):
    """Base class of functions of the groups' mean losses, which the table tracks."""

    def forward(self, losses: Tensor, groups: Tensor) -> Tensor:
        """Return the loss of a batch.

        Args:
            losses: (B,), the loss of each sample (``reduction="none"``).
            groups: (B,), the group of each sample.
        """
        read = partial(_checked, losses, groups, self.objective.num_blocks)
        groups, losses = exchange(self._together(), read, self.fingerprint)
        if not len(groups):
            raise ValueError("losses and groups are empty: a batch has at least one sample")
        return self._take(self._probe(losses, groups))

    def exact(self, losses: Tensor, groups: Tensor) -> Tensor:
        """Return the objective of all samples of a data set, which is the value to monitor.

        It is differentiable.

        Args:
            losses: (N,), the loss of each sample.
            groups: (N,), the group of each sample. Every group must have a sample.
        """
        groups, losses = _checked(losses, groups, self.objective.num_blocks)
        # In float64, so that a sum over many samples does not round.
        probe = self._probe(losses.double(), groups)
        if empty := absent(probe.blocks, self.objective.num_blocks):
            raise ValueError(f"groups {empty} have no sample: the objective is a mean over all")
        value = self.objective.outer(probe.values, probe.blocks).mean().to(losses.dtype)
        if not value.isfinite():
            largest = probe.values.detach().abs().max().item()
            raise FloatingPointError(
                f"the objective is {value.item()}, with mean losses of up to {largest:.3g} in size"
            )
        return value

    def _probe(self, losses: Tensor, groups: Tensor) -> Probe:
        """Return a probe of the mean losses of the groups in a batch."""
        blocks, owner, counts = groups.unique(return_inverse=True, return_counts=True)
        batch = GroupBatch(blocks, losses, owner, counts, targets=groups)
        # The losses are given, so the model is the identity and the objective's loss returns them.
        probe: Probe = self.objective.inner(nn.Identity(), batch)
        return probe


class GroupDROLoss(_GroupLoss):
    """A smooth form of the worst mean loss of a group, regularized by the KL divergence.

    The value is the mean of T (exp(u / T) - 1) over the groups in the batch, where u is the tracked
    mean loss of a group. Beyond u = 10 T the exponential continues along its tangent. As the
    temperature T goes to 0, only the worst group counts. As T goes to infinity, all groups count
    alike. ``criterion.objective.risk(value)`` returns the soft maximum. The objective is
    ``fcco.objectives.GroupDRO``.

    With several ranks, the batch is that of all ranks together. For every sample they exchange its
    group (8 bytes) and its loss.

    Args:
        num_groups: m, the number of groups.
        temperature: T.
        beta: the weight of the fresh value in u, or "auto", see ``RowLoss``.

    Examples:
        >>> criterion = GroupDROLoss(4, temperature=1.0)
        >>> criterion(torch.tensor([0.0, 1.0, 1.0]), torch.tensor([3, 0, 0]))  # (e - 1) / 2
        tensor(0.8591)
    """

    def __init__(self, num_groups: int, *, temperature: float, beta: Beta = "auto") -> None:
        super().__init__(
            GroupDRO(_groups(num_groups), temperature=temperature, loss=_given), beta=beta
        )


class GroupCVaRLoss(_GroupLoss):
    """The mean loss of the worst ``fraction`` of the groups, with a smoothed hinge.

    This mean is the minimum over s of s + mean_i max(u_i - s, 0) / fraction, where u_i is the
    tracked mean loss of group i. The threshold s is a learned parameter: pass
    ``criterion.parameters()`` to the optimizer too. The objective is ``fcco.objectives.GroupCVaR``.

    With several ranks, the batch is that of all ranks together. For every sample they exchange its
    group (8 bytes) and its loss.

    Args:
        num_groups: m, the number of groups.
        fraction: the fraction of the groups that counts, in (0, 1].
        temperature: the width of the smoothing.
        beta: the weight of the fresh value in u, or "auto", see ``RowLoss``.

    Examples:
        >>> criterion = GroupCVaRLoss(4, fraction=0.5)
        >>> len(list(criterion.parameters()))
        1
    """

    def __init__(
        self, num_groups: int, *, fraction: float, temperature: float = 0.1, beta: Beta = "auto"
    ) -> None:
        objective = GroupCVaR(
            _groups(num_groups), fraction=fraction, temperature=temperature, loss=_given
        )
        super().__init__(objective, beta=beta)


def _groups(count: int) -> Tensor:
    """Return one sample per group: the objective needs all groups, but draws no samples here."""
    check_positive(num_groups=count)
    return torch.arange(whole("num_groups", count))


def _given(losses: Tensor, groups: Tensor) -> Tensor:
    """Return the losses themselves, because they are computed already."""
    return losses


def _checked(losses: Any, groups: Any, num_groups: int) -> list[Tensor]:
    groups = read_index(groups, num_groups, name="groups", members="groups")
    if not isinstance(losses, Tensor) or not losses.is_floating_point():
        kind = losses.dtype if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(f"losses must be a tensor of floats, got {kind}")
    if losses.shape != groups.shape:
        raise ValueError(
            f"losses must have shape ({len(groups)},), one per sample of groups, got "
            f"{tuple(losses.shape)}: reduction='none'?"
        )
    lost = ~losses.detach().isfinite()
    if lost.any():
        where = lost.nonzero().flatten()
        groups = groups.to(losses.device)[where]
        raise FloatingPointError(
            f"losses at {first_ten(where)}, of groups {first_ten(groups)}, are not finite"
        )
    return [groups.to(losses.device), losses.to(torch.promote_types(losses.dtype, torch.float32))]
