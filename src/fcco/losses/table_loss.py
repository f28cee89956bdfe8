"""A loss for any objective."""

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
    """A loss for any ``Objective``, called as ``criterion(objective.inner(model, batch))``.

    It takes the steps of SOX, see ``RowLoss``. An ordinary loss in ``Probe.loss`` adds its
    gradient, while the value remains the mean of f.

    Under ``torch.distributed`` ranks exchange what they probed: 16 bytes for every block, its
    values, their log-scale and, with ``beta="auto"``, their noise. A block that several ranks probe
    has the mean of their values, weighted by ``Probe.samples``. The objectives of all ranks must
    have equal attributes, but for those whose name begins with an underscore. Every rank needs a
    block in each batch, because ranks wait for each other. If the objective learns parameters, make
    it a part of the module that DDP wraps, which then averages their gradients.

    Args:
        objective: the problem.
        beta: the weight of the fresh value in u, in (0, 1], "auto" or a rule, see ``RowLoss``.

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
        """Return the loss of the probed blocks.

        Args:
            probe: the probe, as ``objective.inner`` returns it.
        """
        ranks = self._together()
        if ranks is None:
            return self._take(probe)
        blocks, values, samples, *more = exchange(
            ranks, lambda: self._columns(probe), self.fingerprint
        )
        # The ordinary losses of the ranks are averaged over blocks, as f is. DDP divides by the
        # number of ranks, hence the factor ``size``.
        share = ranks.size * len(probe.blocks) / len(blocks)
        noise = None if self.table.gain is None else more.pop()
        scale = more.pop() if more else None
        joint = Probe(blocks, values, samples, loss=probe.loss, noise=noise, log_scale=scale)
        return self._take(merge(joint, self._rows.scaled), share)

    def _columns(self, probe: Probe) -> Sequence[Tensor]:
        """Check a probe, and return the columns that ranks exchange."""
        if not isinstance(probe, Probe):
            raise TypeError(f"probe must be a Probe, got {type(probe).__name__}")
        checks = self._checks(probe)
        checks.distinct(checks.probe(Point.CURRENT, 0, probe))
        checks.raise_if_invalid()
        values = widened(probe.values)
        more = [] if probe.log_scale is None else [probe.log_scale]
        if self.table.gain is not None:
            # All ranks must exchange the same columns, even if one has no noise to report.
            noise = torch.full_like(values, torch.nan) if probe.noise is None else probe.noise
            more.append(noise.to(values.dtype))
        return probe.blocks, values, probe.samples_per_row(), *more
