"""Writing large tensors of a checkpoint in pieces, so that whoever reads holds one at a time."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType

__all__ = ["InPieces"]

LARGEST = 1 << 24
"""Bytes of a piece, about."""


class InPieces(DefaultSavePlanner):
    """torch's plan of a checkpoint, with tensors cut along their rows.

    torch's reader loads what was written as one item before it copies the part that is wanted: a
    whole share of the table would be held twice.
    """

    def __init__(self) -> None:
        super().__init__()
        self._cut: dict[MetadataIndex, tuple[WriteItem, int, int]] = {}

    def create_local_plan(self) -> SavePlan:
        """The items of this rank."""
        plan = super().create_local_plan()
        self.plan = replace(plan, items=[piece for item in plan.items for piece in self._of(item)])
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> Any:
        """The tensor of an item, or the rows that its piece has."""
        item, start, count = self._cut.get(write_item.index, (write_item, 0, 0))
        data: Any = super().resolve_data(item)
        return data.narrow(0, start, count) if count else data

    def _of(self, item: WriteItem) -> Iterator[WriteItem]:
        told = item.tensor_data
        sizes = () if told is None else tuple(told.chunk.sizes)
        if told is None or not sizes or not sizes[0]:
            yield item
            return
        row = told.chunk.sizes.numel() // sizes[0] * told.properties.dtype.itemsize
        most = max(1, LARGEST // max(row, 1))
        if most >= sizes[0]:
            yield item
            return
        first, *others = told.chunk.offsets
        for start in range(0, sizes[0], most):
            count = min(most, sizes[0] - start)
            chunk = ChunkStorageMetadata(
                offsets=torch.Size((first + start, *others)),
                sizes=torch.Size((count, *sizes[1:])),
            )
            index = MetadataIndex(item.index.fqn, chunk.offsets)
            self._cut[index] = (item, start, count)
            data = replace(told, chunk=chunk)
            yield replace(item, index=index, type=WriteItemType.SHARD, tensor_data=data)
