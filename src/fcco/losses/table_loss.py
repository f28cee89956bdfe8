"""Any objective as a loss."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fcco.kernel.rows import rows_of
from fcco.losses.exchange import exchange
from fcco.losses.row_loss import RowLoss
from fcco.methods import Point
from fcco.objectives.score import widened
from fcco.problem import Probe

__all__ = ["TableLoss", "merged"]


class TableLoss(RowLoss):
    """Any ``Objective`` as a loss, see ``RowLoss``: ``criterion(objective.inner(model, batch))``.

    ``Probe.loss`` adds its gradient; the value stays the mean of f.

    Under ``torch.distributed`` ranks exchange their rows: 16 bytes and the values (and their
    log-scale) for every block. A block that several of them probe has the mean of their values,
    weighted by ``Probe.samples``.

    Examples:
        >>> from fcco.objectives import GroupDRO
        >>> criterion = TableLoss(GroupDRO(torch.arange(3), temperature=1.0), beta=0.25)
        >>> values = torch.tensor([[1.0]], requires_grad=True)
        >>> loss = criterion(Probe(torch.tensor([2]), values))
        >>> loss.backward()
        >>> loss, values.grad, criterion.read(torch.tensor([2]))  # e - 1, e, 1
        (tensor(1.7183, grad_fn=<_AttachBackward>), tensor([[2.7183]]), tensor([[1.]]))
    """

    def forward(self, probe: Probe) -> Tensor:
        """The loss of the probed blocks.

        Args:
            probe: as a closure of an optimizer's step would return it.
        """
        ranks = self._together()
        if ranks is None:
            return self._take(probe)
        blocks, values, samples, *more = exchange(ranks, lambda: self._columns(probe))
        # Of the ranks' ordinary losses the mean over blocks counts, as that of f does.
        share = ranks.size * len(probe.blocks) / len(blocks)
        noise = None if self.gain is None else more.pop()
        scale = more.pop() if more else None
        joint = Probe(blocks, values, samples, None, probe.loss, scale, noise)
        return self._take(merged(joint, rows_of(self.objective).scaled), share)

    def _columns(self, probe: Probe) -> Sequence[Tensor]:
        """What ranks exchange, once it is checked."""
        if not isinstance(probe, Probe):
            raise TypeError(f"probe must be a Probe, got {type(probe).__name__}")
        checks = self._checks(probe)
        checks.distinct(checks.probe(Point.CURRENT, 0, probe))
        checks.settle()
        values = widened(probe.values)
        more = [] if probe.log_scale is None else [probe.log_scale]
        if self.gain is not None:
            noise = torch.full_like(values, torch.nan) if probe.noise is None else probe.noise
            more.append(noise.to(values.dtype))
        return probe.blocks, values, probe.samples_per_row(), *more


def merged(probe: Probe, scaled: int, *, common: bool = False) -> Probe:
    """A probe in which every block comes once, with the mean of its values over their samples.

    Args:
        probe: in which blocks may come several times.
        scaled: how many leading columns have a log-scale, if there is one.
        common: the values of one block have the same inner samples, hence one noise; otherwise
            their noise is independent.

    Examples:
        >>> values = torch.tensor([[1.0], [5.0], [4.0]])
        >>> probe = merged(Probe(torch.tensor([7, 2, 7]), values, torch.tensor([1, 9, 2])), 1)
        >>> probe.blocks, probe.values.T, probe.samples
        (tensor([2, 7]), tensor([[5., 3.]]), tensor([9, 3]))
    """
    blocks, place = probe.blocks.unique(return_inverse=True)
    if len(blocks) == len(place):
        return probe
    values, samples, noise, scale = probe.values, probe.samples_per_row(), probe.noise, None
    if probe.log_scale is not None:
        # A row of zeros has any scale: it must not raise that of the others.
        empty = (values[:, :scaled] == 0).all(1)
        own = probe.log_scale.masked_fill(empty, -torch.inf)
        scale = torch.full_like(own[: len(blocks)], -torch.inf).scatter_reduce(
            0, place, own, "amax"
        )
        scale = scale.where(scale.isfinite(), 0)
        factor = (own - scale[place]).exp().unsqueeze(1)
        values = torch.cat([values[:, :scaled] * factor, values[:, scaled:]], dim=1)
        if noise is not None:
            noise = torch.cat([noise[:, :scaled] * factor, noise[:, scaled:]], dim=1)
    total = torch.zeros_like(blocks).index_add(0, place, samples)
    share = (samples.double() / total[place]).to(values.dtype).unsqueeze(1)
    values = torch.zeros_like(values[: len(blocks)]).index_add(0, place, values * share)
    if noise is not None:
        power = 1 if common else 2
        parts = (noise * share) ** power
        noise = torch.zeros_like(parts[: len(blocks)]).index_add(0, place, parts) ** (1 / power)
    return Probe(blocks, values, total, None, probe.loss, scale, noise)
