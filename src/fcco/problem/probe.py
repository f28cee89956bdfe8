"""What a closure reports: the sampled inner values of the probed blocks at one point."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Closure", "Closures", "Probe"]


@dataclass(frozen=True, eq=False)
class Probe:
    """Sampled inner values g_i(w; xi) of the probed blocks, differentiable in the parameters.

    Args:
        blocks: int64, shape (B1,): the distinct blocks that were probed.
        values: shape (B1, p): row j is g_i(w; xi) of block ``blocks[j]``.
        samples: inner samples behind each value, one number or an int64 tensor of shape (B1,);
            they are what ``queries`` counts, and what weighs a block that an exact pass meets in
            several chunks.
        pair: shape (B1, p): values of an independent inner sample, needed only by the fresh pair.
        loss: a scalar ordinary loss added to the objective (cross-entropy, a regulariser).
        noise: shape (B1, p), not differentiable: the standard error of each value, at the same
            log-scale; NaN where it is not known. For a mean over k samples it is their standard
            deviation divided by sqrt(k). ``beta="auto"`` needs it, nothing else does.
        log_scale: shape (B1,), not differentiable: g_i = exp(log_scale) values, for a
            ``ScaledObjective``; it applies to ``pair`` too.

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
        """Inner samples behind each row, as an int64 tensor of shape (B1,)."""
        if isinstance(self.samples, Tensor):
            return self.samples
        return torch.full_like(self.blocks, self.samples)


Closure = Callable[[], Probe]
"""Takes nothing, evaluates the model where it stands and returns a Probe."""

Closures = Closure | Sequence[Closure]
"""One closure, or a sequence of them: micro-batches of one step, chunks of an exact pass."""
