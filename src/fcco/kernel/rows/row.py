"""Everything a step does with rows of the table, whatever they hold."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from fcco.methods.point import Point
from fcco.methods.weights import Scalar, Weights
from fcco.problem import Objective, Probe

__all__ = ["Rows"]


class Rows(ABC):
    """Everything a step does with rows, whatever they hold; all tensors are (k, width)."""

    objective: Objective
    width: int
    scaled: int = 0
    """How many leading columns have their log-scale in the last; 0: none."""

    @abstractmethod
    def of(self, probe: Probe, dtype: torch.dtype, *, pair: bool = False) -> Tensor:
        """The rows that a probe reports, detached: its values, or its ``pair``."""

    @abstractmethod
    def pack(self, values: Tensor) -> Tensor:
        """Rows of plain inner values."""

    @abstractmethod
    def unpack(self, rows: Tensor) -> Tensor:
        """The inner values themselves, (k, p), which may overflow."""

    @abstractmethod
    def project(self, rows: Tensor, blocks: Tensor) -> Tensor:
        """The objective's ``feasible``."""

    @abstractmethod
    def outer(self, rows: Tensor, blocks: Tensor) -> Tensor:
        """f_i of each row, (k,)."""

    @abstractmethod
    def slopes(self, rows: Tensor, fresh: Tensor, blocks: Tensor, *, supported: bool) -> Tensor:
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
        further: Mapping[Point, Tensor],
        derivative: Tensor | None,
        anchor: Tensor | None,
    ) -> Tensor:
        """``fcco.kernel.recursion.advance`` on rows.

        Args:
            further: the rows seen at the further points.
            derivative: stands for the change since the previous point (single point); (k, p).
        """

    @abstractmethod
    def surprise(
        self, old: Tensor, fresh: Tensor, noise: Tensor, blocks: Tensor
    ) -> tuple[Tensor, Tensor]:
        """How far fresh values are from the rows, and their noise, both in units of f: (k, p).

        A unit is the slope of f between the two, at ``PLACE``: at the row alone, rows that lag by
        many e-folds would count for everything, at the fresh value alone its noise would.
        """

    @abstractmethod
    def logs(self, rows: Tensor) -> Tensor:
        """The logarithm of the largest component of each row, (k, 1)."""

    @abstractmethod
    def weigh(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Rows times one number each, (k, 1)."""

    @abstractmethod
    def add(self, first: Tensor, second: Tensor) -> Tensor:
        """The sum of two rows."""
