"""What a step rule is: it turns the estimate z into the direction w moves along."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fcco.distributed.sharded import global_norm

__all__ = ["Norm", "Update", "clip_scale"]

Norm = Callable[[Sequence[Tensor]], Tensor]
"""The Euclidean norm of all parameters together."""


class Update(ABC):
    """w_{t+1} = w_t - lr d_t, where d_t is made of z_t; the recursion of z never sees d_t.

    An update holds only settings; what it remembers lives in ``optimizer.state[p]``.
    """

    def init(self, z: Tensor) -> dict[str, Tensor]:
        """What is remembered for one parameter, given its (zero) z."""
        return {}

    @abstractmethod
    def directions(
        self,
        zs: Sequence[Tensor],
        states: Sequence[dict[str, Any]],
        norm: Norm = global_norm,
    ) -> list[Tensor]:
        """d_t for every parameter; of a sharded one the local part is enough.

        Args:
            zs: z_t of every parameter, only read.
            states: what is remembered of every parameter, advanced in place.
            norm: of all parameters together.
        """


def clip_scale(zs: Sequence[Tensor], radius: float, norm: Norm = global_norm) -> Tensor:
    """min(1, radius / ||z||), the factor of the projection onto a ball.

    Examples:
        >>> clip_scale([torch.tensor([3.0, 4.0])], radius=1.0)
        tensor(0.2000)
    """
    size = norm(zs)
    return (radius / size.clamp_min(torch.finfo(size.dtype).tiny)).clamp(max=1.0)
