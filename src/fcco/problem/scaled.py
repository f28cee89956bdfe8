"""Objectives whose inner values overflow: rows are kept as a mantissa and a log-scale."""

from abc import abstractmethod

import torch
from torch import Tensor

from fcco.problem.objective import Objective

__all__ = ["ScaledObjective"]


class ScaledObjective(Objective):
    """An objective of exponentials, u^i = exp(log_scale^i) * mantissa^i.

    ``inner`` reports mantissas in ``Probe.values`` and their common exponent, one per row, in
    ``Probe.log_scale``. The optimizer brings all values of a row, at every point, to one scale
    before the linear recursion, so that temperature 0.01 or a score of 1e4 stays finite.

    A subclass defines ``inner_size`` and ``scaled_outer`` (and ``scaled_feasible``, where a domain
    is known); ``outer`` and ``feasible`` of plain values follow.

    Examples:
        >>> class LogMeanExp(ScaledObjective):
        ...     num_blocks, inner_dim, inner_size = 3, 1, 100
        ...     def scaled_outer(self, u, log_scale, blocks):
        ...         return u[:, 0].log() + log_scale
        >>> objective, blocks = LogMeanExp(), torch.tensor([0])
        >>> objective.scaled_outer(torch.ones(1, 1), torch.tensor([1e4]), blocks)
        tensor([10000.])
        >>> objective.outer(torch.ones(1, 1), blocks)
        tensor([0.])
    """

    inner_size: int
    """n, an upper bound on the inner samples of any block, at least 1."""
    scaled_dim: int | None = None
    """How many leading components, 1..p, the scale applies to; None: all. The others are plain."""

    @abstractmethod
    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """f_i(exp(log_scale) u) for each row: (k, p), (k,) and (k,) to (k,)."""

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Project exp(log_scale) u onto the domain, given and returned as mantissas."""
        return u

    def supported(self, u: Tensor, fresh: Tensor, fraction: float | Tensor) -> Tensor:
        """Raise u to a fraction of a fresh value; both are mantissas of one scale.

        The fraction is a number, or one for each row, (k, 1).

        The fraction is 1/n at least: a mean of n positive terms is at least 1/n of any of them,
        hence of any sample's mean. Rows that are stale by hundreds of e-folds then still have a
        finite slope. For a row that was just updated it is beta, if that is more: a moving average
        of positive values holds beta of the new one, and a correction may take away what the row
        kept but no more. Override it where components may be negative.
        """
        return torch.maximum(u, fraction * fresh)

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """f_i of plain values."""
        return self.scaled_outer(u, torch.zeros_like(u[:, 0]), blocks)

    def feasible(self, u: Tensor, blocks: Tensor) -> Tensor:
        """The projection of plain values."""
        return self.scaled_feasible(u, torch.zeros_like(u[:, 0]), blocks)
