"""Constraints that are expectations, enforced by a quadratic penalty; one block each."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from fcco.objectives.domains import check_positive
from fcco.objectives.grouped import GroupObjective
from fcco.problem.batches import GroupBatch
from fcco.problem.probe import Probe

__all__ = ["ConstraintPenalty"]


class ConstraintPenalty(GroupObjective):
    """A quadratic penalty for constraints c_i(w) <= 0, where c_i is a mean over samples.

        u = c_i(w),  f(u) = (rho/2) max(u, 0)^2.

    The function to minimize under the constraints is the ordinary ``loss`` of the probe:

        opt.step(lambda: replace(objective.inner(model, batch), loss=criterion(...)))

    Block i is constraint i.

    Args:
        constraints: (N,), the constraint that each sample belongs to, numbered from 0.
        targets: (N, ...), the target of each sample, or None.
        constraint: a function from (outputs, targets, block of each sample) to one number per
            sample. Its mean over the samples of block i is c_i.
        penalty: rho, the weight of the penalty.

    Examples:
        >>> import torch
        >>> objective = ConstraintPenalty(torch.tensor([0, 1, 0]),
        ...                               constraint=lambda h, targets, block: h[:, 0] - 0.5)
        >>> objective.outer(torch.tensor([[2.0], [-1.0]]), torch.tensor([0, 1]))
        tensor([2., 0.])
    """

    inner_dim = 1

    def __init__(
        self,
        constraints: Any,
        targets: Any = None,
        *,
        constraint: Callable[[Any, Tensor | None, Tensor], Tensor],
        penalty: float = 1.0,
    ) -> None:
        check_positive(penalty=penalty)
        self.constraint = constraint
        self.penalty = penalty
        self._build(constraints, targets)

    def inner(self, model: Any, batch: GroupBatch) -> Probe:
        """Return the mean of the constraint over each block's samples."""
        block = batch.blocks[batch.owner]
        values = self.constraint(model(batch.inputs), batch.targets, block)
        if values.shape != batch.owner.shape:
            raise ValueError(
                f"constraint must give one number per sample, shape {tuple(batch.owner.shape)}, "
                f"got {tuple(values.shape)}"
            )
        means = batch.mean(values[:, None])
        return Probe(batch.blocks, means, batch.counts, noise=batch.noise(values[:, None], means))

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Return the penalty of the violation."""
        return self.penalty / 2 * u[:, 0].clamp(min=0).square()
