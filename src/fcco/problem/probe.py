"""The probe that a closure returns: sampled inner values of the probed blocks at one point."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Closure", "Closures", "Probe"]


@dataclass(frozen=True, eq=False)
class Probe:
    """Sampled inner values g_i(w; xi) of the probed blocks, differentiable in the parameters.

    Args:
        blocks: (B1,), int64, the distinct blocks that were probed.
        values: (B1, p), where row j is g_i(w; xi) of block ``blocks[j]``.
        samples: the number of inner samples behind each value, as one number or as an int64 tensor
            (B1,). ``queries`` counts them, and an exact pass uses them as weights if a block is in
            several chunks.
        pair: (B1, p), the values of an independent inner sample, which only ``FreshPair`` needs.
        loss: an ordinary scalar loss that is added to the objective, such as a cross-entropy or a
            regularizer.
        noise: (B1, p), not differentiable, the standard error of each value at the same log-scale;
            NaN where it is unknown. For a mean over k samples it is their standard deviation
            divided by sqrt(k). Only ``beta="auto"`` needs it.
        log_scale: (B1,), not differentiable, for a ``ScaledObjective``: g_i is exp(log_scale)
            times the values. It applies to ``pair`` and ``noise`` too.

    Examples:
        >>> Probe(torch.tensor([4, 2]), torch.zeros(2, 1), samples=16).samples_per_row()
        tensor([16, 16])
    """

    blocks: Tensor
    values: Tensor
    samples: int | Tensor = 1
    pair: Tensor | None = None
    loss: Tensor | None = None
    noise: Tensor | None = None
    log_scale: Tensor | None = None

    def samples_per_row(self) -> Tensor:
        """Return the number of inner samples of each row, as an int64 tensor (B1,)."""
        if isinstance(self.samples, Tensor):
            return self.samples
        return torch.full_like(self.blocks, self.samples)


Closure = Callable[[], Probe]
"""A function without arguments that evaluates the current model and returns a Probe."""

Closures = Closure | Sequence[Closure]
"""One closure, or a sequence of closures: micro-batches of a step or chunks of an exact pass."""
