"""Everything the optimizer does with rows of the table, whatever they hold."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from fcco.methods.coefficients import Scalar, Weights
from fcco.methods.point import Point
from fcco.problem.probe import Probe

__all__ = ["Rows"]


class Rows(ABC):
    """Everything the optimizer does with rows, whatever they hold; all tensors are (k, width)."""

    width: int
    scaled: int = 0
    """How many leading columns have their log-scale in the last; 0: none."""

    @abstractmethod
    def pack(self, values: Tensor, log_scale: Tensor | None = None) -> Tensor:
        """Rows of inner values, or of mantissas and their log-scale."""

    @abstractmethod
    def project(self, rows: Tensor, blocks: Tensor) -> Tensor:
        """The objective's ``feasible``."""

    @abstractmethod
    def outer(self, rows: Tensor, blocks: Tensor) -> Tensor:
        """f_i of each row, (k,)."""

    @abstractmethod
    def pull(self, rows: Tensor, fresh: Tensor, blocks: Tensor, *, supported: bool) -> Tensor:
        """Slopes at ``rows``, to be back-propagated through ``Probe.values`` of ``fresh``: (k, p).

        ``supported``: whether fresh values bound the rows, see ``ScaledObjective.supported``.
        """

    @abstractmethod
    def advance(
        self,
        old: Tensor,
        keep: Scalar,
        weights: Weights,
        current: Tensor,
        there: Mapping[Point, Tensor],
        derivative: Tensor | None,
        anchor: Tensor | None,
    ) -> Tensor:
        """``fcco.kernel.recursion.advance`` on rows.

        Args:
            there: the rows seen at the further points.
            derivative: stands for the change since the previous point (single point); (k, p).
        """

    @abstractmethod
    def weigh(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Rows times a number each, (k, 1)."""

    @abstractmethod
    def add(self, first: Tensor, second: Tensor) -> Tensor:
        """The sum of two rows."""

    def of(self, probe: Probe, dtype: torch.dtype) -> Tensor:
        """The rows a probe reports, detached."""
        scale = probe.log_scale
        return self.pack(
            probe.values.detach().to(dtype), None if scale is None else scale.to(dtype)
        )
