"""The plain step."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fcco.distributed.sharded import global_norm
from fcco.updates.update import Norm, Update

__all__ = ["Plain"]


class Plain(Update):
    """d_t = z_t (Algorithms 1 and 2).

    Examples:
        >>> import torch
        >>> Plain().directions([torch.tensor([2.0])], [{}])
        [tensor([2.])]
    """

    def directions(
        self,
        zs: Sequence[Tensor],
        states: Sequence[dict[str, Any]],
        norm: Norm = global_norm,
    ) -> list[Tensor]:
        """z itself."""
        return list(zs)
