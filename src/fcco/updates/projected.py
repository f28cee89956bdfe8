"""The step along the projection of z onto a ball."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fcco.distributed.sharded import global_norm, local
from fcco.updates.update import Norm, Update, clip_scale

__all__ = ["Projected"]


class Projected(Update):
    """d_t = z_t min(1, radius / ||z_t||), Lemma ``lem:main3``, case (ii), with radius = C_F.

    The recursion keeps the raw z_t.

    Examples:
        >>> import torch
        >>> Projected(radius=1.0).directions([torch.tensor([3.0, 4.0])], [{}])
        [tensor([0.6000, 0.8000])]
    """

    def __init__(self, radius: float) -> None:
        if not radius > 0:
            raise ValueError(f"Projected: radius must be positive, got {radius}")
        self.radius = radius

    def directions(
        self,
        zs: Sequence[Tensor],
        states: Sequence[dict[str, Any]],
        norm: Norm = global_norm,
    ) -> list[Tensor]:
        """z, or its projection onto the ball."""
        scale = clip_scale(zs, self.radius, norm)
        return [local(z) * scale.to(z.device) for z in zs]
