"""A safeguard for versions 2 and 3 at large steps; off unless asked for, and in theory runs."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fcco.methods.weights import Weights

__all__ = ["ChangeBound"]


@dataclass(frozen=True)
class ChangeBound:
    """Keeps STORM's correction from outweighing the sample it corrects:

        (1 - alpha) ||G(w_t) - G(w_{t-1})||  <=  ratio alpha ||G(w_t)||,

    or with whatever weights a row of z has in the places of 1 - alpha and alpha.

    Version 2 forgets its noise at the rate alpha, so a correction that is not of the order of
    alpha piles up to a z that is mostly noise: v2 and v3 then collapse, as they do at large or
    Adam-style steps with small alpha. While steps are small the bound is not active and the
    method is the paper's; the correction scaled to 0 would be momentum.

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
        """The factor in [0, 1] on the correction, from the norms of G(w_t) and of its change."""
        correction = row.since_previous * change
        sample = (row.current + row.since_snapshot) * gradient
        tiny = torch.finfo(correction.dtype).tiny
        return (self.ratio * sample / correction.clamp_min(tiny)).clamp(max=1.0)
