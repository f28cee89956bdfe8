"""A data set in which each sample belongs to one block: groups, bags, constraints."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fcco.data.arguments import absent, as_inputs, structure, tensor, whole
from fcco.data.blocks import BlockData
from fcco.data.draws import draw
from fcco.problem.batches import GroupBatch

__all__ = ["GroupData"]


class GroupData(BlockData[GroupBatch]):
    """Samples, each with its group. Block i is group i.

    Args:
        inputs: N samples.
        groups: (N,), int64.
        targets: one target per sample (a label), or None.
        num_groups: m; by default the largest group number plus one.
        drop_empty: leave out empty groups and renumber the others, instead of raising; ``names``
            lists the groups that were kept.

    Examples:
        >>> data = GroupData(torch.rand(4, 2), torch.tensor([0, 2, 1, 0]))
        >>> data.num_blocks, data.sizes.tolist()
        (3, [2, 1, 1])
    """

    def __init__(
        self,
        inputs: Any,
        groups: Tensor,
        targets: Tensor | None = None,
        *,
        num_groups: int | None = None,
        drop_empty: bool = False,
    ) -> None:
        inputs = as_inputs(inputs)
        if not len(inputs):
            raise ValueError("inputs is empty")
        groups = structure("groups", groups, len(inputs), kind="whole")
        targets = None if targets is None else tensor("targets", targets)
        if targets is not None and targets.shape[:1] != (len(inputs),):
            raise ValueError(f"{len(inputs)} inputs have targets of shape {tuple(targets.shape)}")
        count = int(groups.max()) + 1 if num_groups is None else whole("num_groups", num_groups)
        if int(groups.max()) >= count:
            raise ValueError(f"groups must lie in 0..{count - 1}")
        names, groups, sizes = groups.unique(return_inverse=True, return_counts=True)
        if not drop_empty and (empty := absent(names, count)):
            raise ValueError(f"groups {empty} have no sample (drop_empty=True leaves them out)")
        self.inputs = inputs
        self.groups, self.targets = groups, targets
        self.names, self.sizes = names, sizes
        self.num_blocks = len(sizes)
        self._order = groups.argsort(stable=True)
        self._starts = sizes.cumsum(0) - sizes

    def check(self, samples: int, *, replacement: bool) -> None:
        """Without replacement, every group has enough samples."""
        super().check(samples, replacement=replacement)
        short = (self.sizes < samples).nonzero().flatten().tolist()
        if not replacement and short:
            raise ValueError(
                f"groups {short[:10]} have fewer than the {samples} samples requested without "
                "replacement"
            )

    def draw(
        self, blocks: Tensor, spread: Tensor, shared: Tensor, *, replacement: bool = True
    ) -> GroupBatch:
        """Samples of each group."""
        place = draw(spread, self.sizes[blocks], replacement=replacement)
        rows = self._order[(self._starts[blocks, None] + place).flatten()]
        owner = torch.arange(len(blocks)).repeat_interleave(spread.shape[1])
        counts = torch.full((len(blocks),), spread.shape[1])
        return GroupBatch(blocks, rows, owner, counts)

    def spans(self, size: int) -> Sequence[Tensor]:
        """Samples by group; a large group fills several chunks."""
        return torch.split(self._order, size)

    def chunk(self, span: Tensor) -> GroupBatch:
        """Some samples and their groups."""
        blocks, owner, counts = self.groups[span].unique(return_inverse=True, return_counts=True)
        return GroupBatch(blocks, span, owner, counts)

    def among(self, rows: Tensor) -> GroupBatch:
        """The samples and their groups."""
        return self.chunk(rows)

    def collate(self, batch: GroupBatch) -> GroupBatch:
        """The batch with inputs and targets."""
        if self.targets is not None:
            batch = replace(batch, targets=self.take(self.targets, batch.inputs))
        return super().collate(batch)
