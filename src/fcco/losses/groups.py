"""Cells of the table (a sample's score for one task) in groups: tasks, their classes, or lists."""

from typing import Any, Self

import torch
from torch import Tensor, nn

from fcco.data.arguments import structure
from fcco.losses.sums import ranges

__all__ = ["Groups", "list_weights"]


class Groups(nn.Module):
    """Some cells of a table, sorted by group; a module, so that it moves with its owner.

    Args:
        cells: (c,), positions in the flattened table, sorted within each group.
        starts: (G + 1,), where each group begins among them.

    Examples:
        >>> groups = Groups.of(torch.tensor([1, 0, -1, 1]), 2)
        >>> groups.cells, groups.starts
        (tensor([1, 0, 3]), tensor([0, 1, 3]))
    """

    cells: Tensor
    starts: Tensor

    def __init__(self, cells: Tensor, starts: Tensor) -> None:
        super().__init__()
        self.register_buffer("cells", cells, persistent=False)
        self.register_buffer("starts", starts, persistent=False)

    @classmethod
    def of(cls, owner: Tensor, count: int) -> Self:
        """From the group of every cell, below 0 where it belongs to none."""
        cells = (owner >= 0).nonzero().flatten()
        cells = cells[owner[cells].argsort(stable=True)]
        sizes = torch.bincount(owner[cells], minlength=count)
        return cls(cells, torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]))

    def places(self, groups: Tensor) -> tuple[Tensor, Tensor]:
        """Where the cells of these groups are in ``cells``, (k, width), and which of them count."""
        starts = self.starts[groups]
        places, inside = ranges(starts, self.starts[groups + 1] - starts)
        return places.clamp(max=len(self.cells) - 1), inside

    def members(self, groups: Tensor) -> tuple[Tensor, Tensor]:
        """The same without gaps: the cells' places, and which of the groups each belongs to."""
        starts, sizes = self.starts[groups], self.starts[groups + 1] - self.starts[groups]
        which = torch.arange(len(groups), device=groups.device).repeat_interleave(sizes)
        shift = starts - (sizes.cumsum(0) - sizes)
        return torch.arange(len(which), device=groups.device) + shift[which], which

    def owner(self) -> Tensor:
        """The group of every one of ``cells``."""
        sizes = self.starts.diff()
        return torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes)


def list_weights(given: Any, count: int) -> Tensor:
    """How much each list counts, in float64; 1 if nothing is given.

    Examples:
        >>> list_weights(None, 2), list_weights([3, 1], 2)
        (tensor([1., 1.], dtype=torch.float64), tensor([3., 1.], dtype=torch.float64))
    """
    weights = torch.ones(count) if given is None else given
    return structure("weights", weights, count, kind="positive").double()
