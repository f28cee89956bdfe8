"""Any objective as a loss."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fcco.losses.exchange import exchange
from fcco.losses.merge import merge
from fcco.losses.row_loss import RowLoss
from fcco.methods import Point
from fcco.objectives.score import widened
from fcco.problem import Probe

__all__ = ["TableLoss"]


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

    _validate_with = "fcco.data.exact_value(model, inputs, objective of that set)"

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
        noise = None if self.table.gain is None else more.pop()
        scale = more.pop() if more else None
        joint = Probe(blocks, values, samples, loss=probe.loss, noise=noise, log_scale=scale)
        return self._take(merge(joint, self._rows.scaled), share)

    def _columns(self, probe: Probe) -> Sequence[Tensor]:
        """What ranks exchange, once it is checked."""
        if not isinstance(probe, Probe):
            raise TypeError(f"probe must be a Probe, got {type(probe).__name__}")
        checks = self._checks(probe)
        checks.distinct(checks.probe(Point.CURRENT, 0, probe))
        checks.raise_if_invalid()
        values = widened(probe.values)
        more = [] if probe.log_scale is None else [probe.log_scale]
        if self.table.gain is not None:
            noise = torch.full_like(values, torch.nan) if probe.noise is None else probe.noise
            more.append(noise.to(values.dtype))
        return probe.blocks, values, probe.samples_per_row(), *more
