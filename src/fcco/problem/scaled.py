"""Objectives whose inner values would overflow, kept as a mantissa and a log-scale."""

from abc import abstractmethod

import torch
from torch import Tensor

from fcco.problem.objective import Objective

__all__ = ["ScaledObjective"]


class ScaledObjective(Objective):
    """Base class of objectives of exponentials, with u^i = exp(log_scale^i) * mantissa^i.

    ``inner`` reports mantissas in ``Probe.values``, and one common exponent per row in
    ``Probe.log_scale``. The optimizer converts all values of a row, at every point, to one scale
    before the linear recursion. So a temperature of 0.01 or a score of 1e4 stays finite.

    A subclass defines ``inner_size`` and ``scaled_outer``, and ``scaled_feasible`` if a domain is
    known. ``outer`` and ``feasible`` of plain values are derived from them.

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
    """n, an upper bound on the number of inner samples of any block, at least 1."""
    scaled_dim: int | None = None
    """Number of leading components, 1..p, that the scale applies to; None if it is all of them."""

    @abstractmethod
    def scaled_outer(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Return f_i(exp(log_scale) u) for each row, given (k, p), (k,) and (k,); shape (k,)."""

    def scaled_feasible(self, u: Tensor, log_scale: Tensor, blocks: Tensor) -> Tensor:
        """Project exp(log_scale) u onto the domain; u and the result are mantissas."""
        return u

    def supported(self, u: Tensor, fresh: Tensor, fraction: float | Tensor) -> Tensor:
        """Increase u to at least a fraction of a fresh value; both are mantissas of one scale.

        The fraction is at least 1/n, because a mean of n positive terms is at least 1/n of any of
        them, and so of the mean of any sample. Rows that are stale by a factor of exp(100) then
        still have a finite slope. For a row that was just updated, the fraction is beta if that is
        more: a moving average of positive values contains beta times the new one. Override this
        method if components may be negative.

        Args:
            u: (k, p), the rows.
            fresh: (k, p), the fresh values.
            fraction: a number, or one number per row, (k, 1).
        """
        return torch.maximum(u, fraction * fresh)

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Return f_i of plain values."""
        return self.scaled_outer(u, torch.zeros_like(u[:, 0]), blocks)

    def feasible(self, u: Tensor, blocks: Tensor) -> Tensor:
        """Return the projection of plain values."""
        return self.scaled_feasible(u, torch.zeros_like(u[:, 0]), blocks)
