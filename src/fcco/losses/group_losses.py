"""Distributionally robust over groups, beside any loss per sample."""

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
    """A function of the mean losses of groups, which the table tracks."""

    def forward(self, losses: Tensor, groups: Tensor) -> Tensor:
        """The loss of a batch.

        Args:
            losses: (B,), one per sample (``reduction="none"``).
            groups: (B,), to which group each sample belongs.
        """
        read = partial(_checked, losses, groups, self.objective.num_blocks)
        groups, losses = exchange(self._together(), read, self.fingerprint)
        if not len(groups):
            raise ValueError("losses and groups are empty: a batch has at least one sample")
        return self._take(self._probe(losses, groups))

    def exact(self, losses: Tensor, groups: Tensor) -> Tensor:
        """The objective of all samples of a data set, differentiable: the value to monitor.

        Args:
            losses: (N,), one per sample.
            groups: (N,), to which group each sample belongs; every group has a sample.
        """
        groups, losses = _checked(losses, groups, self.objective.num_blocks)
        probe = self._probe(losses.double(), groups)
        if empty := absent(probe.blocks, self.objective.num_blocks):
            raise ValueError(f"groups {empty} have no sample: the objective is a mean over all")
        return self.objective.outer(probe.values, probe.blocks).mean().to(losses.dtype)

    def _probe(self, losses: Tensor, groups: Tensor) -> Probe:
        """The mean loss of each group that is there."""
        blocks, owner, counts = groups.unique(return_inverse=True, return_counts=True)
        batch = GroupBatch(blocks, losses, owner, counts, targets=groups)
        probe: Probe = self.objective.inner(nn.Identity(), batch)
        return probe


class GroupDROLoss(_GroupLoss):
    """KL-regularized worst group: the mean over the probed groups of T (exp(u / T) - 1).

    u is the tracked mean loss of a group; beyond u = 10 T the exponential continues along its
    tangent. As the temperature T goes to 0 the worst group alone counts, as it goes to infinity all
    count alike. ``criterion.objective.risk(value)`` is the soft maximum. The objective is
    ``fcco.objectives.GroupDRO``.

    On several ranks the batch is that of all of them: 8 bytes and the loss for every sample.

    Args:
        num_groups: m.
        temperature: T.
        beta: weight of the new in u, or "auto", see ``RowLoss``.

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

    min over s of s + mean_i max(u_i - s, 0) / fraction. The threshold s is learned like a weight:
    give ``criterion.parameters()`` to the optimizer too. The objective is
    ``fcco.objectives.GroupCVaR``.

    On several ranks the batch is that of all of them: 8 bytes and the loss for every sample.

    Args:
        num_groups: m.
        fraction: of the groups that counts, in (0, 1].
        temperature: the width of the smoothing.
        beta: weight of the new in u, or "auto", see ``RowLoss``.

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
    """Group numbers for an objective that is never asked for samples: one sample each."""
    check_positive(num_groups=count)
    return torch.arange(whole("num_groups", count))


def _given(losses: Tensor, groups: Tensor) -> Tensor:
    """The loss of each sample is computed already."""
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
