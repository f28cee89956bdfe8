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
        pair: shape (B1, p): values of an independent inner sample, needed by the fresh pair alone.
        log_scale: shape (B1,), not differentiable: g_i = exp(log_scale) values, for a
            ``ScaledObjective``; it applies to ``pair`` too.
        loss: a scalar ordinary loss added to the objective (cross-entropy, a regulariser).

    Examples:
        >>> probe = Probe(torch.tensor([4, 2]), torch.zeros(2, 1), samples=16)
        >>> probe.check(inner_dim=1, device=torch.device("cpu"))
    """

    blocks: Tensor
    values: Tensor
    samples: int | Tensor = 1
    pair: Tensor | None = None
    loss: Tensor | None = None
    log_scale: Tensor | None = None

    def check(self, *, inner_dim: int, device: torch.device) -> None:
        """Raise a ``ValueError`` that names the field whose type, shape or device is wrong.

        Only what the host knows without asking the device is looked at here.
        """
        _check_tensor("blocks", self.blocks, (None,), device)
        if self.blocks.dtype != torch.int64:
            raise ValueError(f"Probe.blocks must be int64, got {self.blocks.dtype}")
        count = self.blocks.shape[0]
        if count == 0:
            raise ValueError("Probe.blocks is empty: a step probes at least one block")
        _check_tensor("values", self.values, (count, inner_dim), device, floating=True)
        if self.pair is not None:
            _check_tensor("pair", self.pair, (count, inner_dim), device, floating=True)
        if self.loss is not None:
            _check_tensor("loss", self.loss, (), device, floating=True)
        if self.log_scale is not None:
            _check_tensor("log_scale", self.log_scale, (count,), device, floating=True)
            if self.log_scale.requires_grad:
                raise ValueError("Probe.log_scale must be detached: it is a choice of units")
        if isinstance(self.samples, Tensor):
            _check_tensor("samples", self.samples, (count,), device)
            if self.samples.dtype != torch.int64:
                raise ValueError(f"Probe.samples must be int64, got {self.samples.dtype}")
        elif isinstance(self.samples, bool) or not isinstance(self.samples, int):
            raise ValueError(f"Probe.samples must be an int or a tensor, got {self.samples!r}")
        elif self.samples < 1:
            raise ValueError(f"Probe.samples must be at least 1, got {self.samples}")

    def samples_per_row(self) -> Tensor:
        """Inner samples behind each row, as an int64 tensor of shape (B1,)."""
        if isinstance(self.samples, Tensor):
            return self.samples
        return torch.full_like(self.blocks, self.samples)


Closure = Callable[[], Probe]
"""Takes nothing, evaluates the model where it stands and returns a Probe."""

Closures = Closure | Sequence[Closure]
"""One closure, or a sequence of them: micro-batches of one step, chunks of an exact pass."""


def _check_tensor(
    name: str,
    tensor: object,
    shape: tuple[int | None, ...],
    device: torch.device,
    floating: bool = False,
) -> None:
    if not isinstance(tensor, Tensor):
        raise ValueError(f"Probe.{name} must be a tensor, got {type(tensor).__name__}")
    if len(shape) != tensor.ndim or any(
        n is not None and n != k for n, k in zip(shape, tensor.shape, strict=True)
    ):
        wanted = "(" + ", ".join("B1" if n is None else str(n) for n in shape) + ")"
        raise ValueError(f"Probe.{name} must have shape {wanted}, got {tuple(tensor.shape)}")
    if floating and not tensor.is_floating_point():
        raise ValueError(f"Probe.{name} must be floating point, got {tensor.dtype}")
    if tensor.device != device:
        raise ValueError(f"Probe.{name} is on {tensor.device}, the parameters are on {device}")
