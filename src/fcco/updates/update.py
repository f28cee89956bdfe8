"""What a step rule is: it turns the estimate z into the direction w moves along."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fcco.distributed.sharded import global_norm

__all__ = ["Update", "clip_scale"]


class Update(ABC):
    """w_{t+1} = w_t - lr d_t, where d_t is made of z_t; the recursion of z never sees d_t.

    An update holds settings alone; what it remembers lives in ``optimizer.state[p]``.
    """

    def init(self, z: Tensor) -> dict[str, Tensor]:
        """What is remembered for one parameter, given its (zero) z."""
        return {}

    @abstractmethod
    def directions(self, zs: Sequence[Tensor], states: Sequence[dict[str, Any]]) -> list[Tensor]:
        """d_t for every parameter. ``zs`` is only read; ``states`` are advanced in place.

        Of a sharded parameter (``fcco.distributed.sharded``) the local part is enough.
        """


def clip_scale(zs: Sequence[Tensor], radius: float) -> Tensor:
    """min(1, radius / ||z||), the factor of the projection onto a ball.

    Examples:
        >>> clip_scale([torch.tensor([3.0, 4.0])], radius=1.0)
        tensor(0.2000)
    """
    norm = global_norm(zs)
    return (radius / norm.clamp_min(torch.finfo(norm.dtype).tiny)).clamp(max=1.0)
