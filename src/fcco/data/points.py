"""A data set whose blocks are its points; the model draws the inner samples (IWAE)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from fcco.data.arguments import as_inputs, whole
from fcco.data.blocks import BlockData, Device
from fcco.problem.batches import PointBatch

__all__ = ["PointData"]


class PointData(BlockData[PointBatch]):
    """Block i is input i.

    Args:
        inputs: m points.
        exact_samples: inner samples per point in an exact pass, because there is no finite sum.

    Examples:
        >>> PointData(torch.rand(5, 2)).num_blocks
        5
    """

    def __init__(self, inputs: Any, exact_samples: int = 256) -> None:
        self.inputs = as_inputs(inputs)
        if not len(self.inputs):
            raise ValueError("inputs is empty")
        self.num_blocks = len(self.inputs)
        self.exact_samples = whole("exact_samples", exact_samples)
        if exact_samples < 1:
            raise ValueError(f"exact_samples must be at least 1, got {exact_samples}")

    def draw(
        self, blocks: Tensor, spread: Tensor, shared: Tensor, *, replacement: bool = True
    ) -> PointBatch:
        """The points of ``blocks``."""
        return PointBatch(blocks, blocks, samples=spread.shape[1])

    def among(self, rows: Tensor) -> PointBatch:
        """These points, with one inner sample each."""
        return PointBatch(rows, rows, samples=1)

    def batch(self, rows: Any, samples: int = 1) -> PointBatch:
        """A batch of given points.

        Args:
            rows: positions of points; one that comes twice counts once.
            samples: inner samples per point.
        """
        return replace(super().batch(rows), samples=samples)

    def through(self, model: Any, size: int, device: Device = None) -> tuple[Self, Any]:
        """The model samples, so there is nothing to reuse."""
        return self, model

    def spans(self, size: int) -> Sequence[Tensor]:
        """Points in order."""
        return torch.split(torch.arange(self.num_blocks), size)

    def chunk(self, span: Tensor) -> PointBatch:
        """Some points."""
        return PointBatch(span, span, samples=self.exact_samples)
