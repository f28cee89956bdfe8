"""An optional safeguard for versions 2 and 3 at large steps, which the theory does not use."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fcco.methods.weights import Weights

__all__ = ["ChangeBound"]


@dataclass(frozen=True)
class ChangeBound:
    """A bound that keeps STORM's correction from outweighing the gradient that it corrects.

        (1 - alpha) ||G(w_t) - G(w_{t-1})||  <=  ratio alpha ||G(w_t)||

    Other methods have the weights of their row of z in place of 1 - alpha and alpha.

    Version 2 forgets its noise at the rate alpha. A correction that is not of the order of alpha
    therefore accumulates, until z is mostly noise. Versions 2 and 3 then collapse, for example at
    large or Adam-style steps with a small alpha. While steps are small, the bound is inactive and
    the method is the paper's. With a correction scaled to 0 it would be momentum.

    Args:
        ratio: the largest allowed ratio of the two sides, at least 0.

    Examples:
        >>> storm = Weights(current=0.5, since_previous=0.5)
        >>> ChangeBound(ratio=1.0).scale(storm, torch.tensor(1.0), torch.tensor(2.0))
        tensor(0.5000)
    """

    ratio: float = 1.0

    def __post_init__(self) -> None:
        if not self.ratio >= 0:
            raise ValueError(f"ChangeBound: ratio must not be negative, got {self.ratio}")

    def scale(self, row: Weights, gradient: Tensor, change: Tensor) -> Tensor:
        """Return the correction's factor in [0, 1], given the norms of G(w_t) and its change."""
        correction = row.since_previous * change
        # In anchored methods the weight of the sample's own gradient is ``since_snapshot``.
        sample = (row.current + row.since_snapshot) * gradient
        tiny = torch.finfo(correction.dtype).tiny
        return (self.ratio * sample / correction.clamp_min(tiny)).clamp(max=1.0)
