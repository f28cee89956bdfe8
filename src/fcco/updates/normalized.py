"""The normalised step of the adaptive methods."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fcco.distributed.sharded import global_norm, local
from fcco.updates.update import Norm, Update

__all__ = ["Normalized"]


class Normalized(Update):
    """d_t = z_t / ||z_t||, the norm over all parameters (AdaMSVRM; ``new:1`` to ``new:3``).

    At z_t = 0 the step is zero.

    Examples:
        >>> Normalized().directions([torch.tensor([3.0, 4.0])], [{}])
        [tensor([0.6000, 0.8000])]
    """

    def directions(
        self,
        zs: Sequence[Tensor],
        states: Sequence[dict[str, Any]],
        norm: Norm = global_norm,
    ) -> list[Tensor]:
        """Every z over the common norm."""
        size = norm(zs)
        size = size.clamp_min(torch.finfo(size.dtype).tiny)
        return [local(z) / size.to(z.device) for z in zs]
