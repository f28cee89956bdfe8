"""The sum of gradients over the points of a step, accumulated in ``.grad`` or separately."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fcco.distributed.sharded import global_norm, likes, local, locals_of
from fcco.kernel.safeguard import ChangeBound
from fcco.methods.weights import Point, Weights
from fcco.updates import Norm

__all__ = ["GradientSum", "combine"]


class GradientSum:
    """The sum of b_p grad g_i(w_p)^T slope_i over points p and blocks i, for every parameter.

    The weights b_p are multiplied into the cotangents, so that all points add up in ``.grad``. This
    needs the memory of one gradient and one reduction over ranks. In three cases the gradients of
    the points are kept apart, in at least float32. Parameters of lower precision would round,
    the safeguard compares the gradients, and exact passes add up many chunks.

    Args:
        params: the parameters.
        wide: tensors with the shape and precision of the sums (z).
        safeguard: the bound on the change of the gradient, or None.
        apart: whether to keep the gradients apart in any case.
        in_buckets: whether ``.grad`` may be a view into a bucket that DDP will use again.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        wide: Sequence[Tensor],
        *,
        safeguard: ChangeBound | None = None,
        apart: bool = False,
        in_buckets: bool = False,
    ) -> None:
        self._params = params
        self._in_buckets = in_buckets
        self._wide = wide
        self._safeguard = safeguard
        self._kept: dict[Point, list[Tensor]] = {}
        self.received = [False] * len(params)
        """Whether each parameter received a gradient at some point."""
        self.narrow = False
        """Whether some parameter has lower precision than its sum."""
        for p, total in zip(params, wide, strict=True):
            self.narrow |= p.dtype != total.dtype
        self.apart = apart or self.narrow or safeguard is not None
        """Whether the gradients of different points are kept apart, without their weights."""

    def collect(self, point: Point, *, end: bool) -> None:
        """Collect the gradients of a backward pass at ``point``; ``end`` marks its last closure."""
        if self.apart and point not in self._kept:
            self._kept[point] = [torch.zeros_like(total) for total in self._wide]
        # Gradients of low precision are moved after every closure, because adding micro-batches in
        # bfloat16 would round. Others may add up in ``.grad`` until the last closure of the point.
        into = self._kept[point] if self.apart and (end or self.narrow) else None
        seen: set[int] = set()
        for j, p in enumerate(self._params):
            grad = p.grad
            if grad is None:
                continue
            if grad.is_sparse:
                raise ValueError(
                    f"trainable parameter {j} has a sparse gradient, which is not supported "
                    "(nn.Embedding(sparse=True)?)"
                )
            self.received[j] = True
            part = grad if type(grad) is Tensor else local(grad)
            if into is not None:
                into[j].add_(part)
                p.grad = None
                continue
            # Autograd may give several parameters parts of one buffer: the same part for a + b, and
            # overlapping ones for cat([a, b]) + c. It would then add the gradient of the next point
            # to the common entries twice. A part would also keep the whole buffer in the state.
            if self._in_buckets or part is not grad:
                # The buffers of DDP and FSDP2 hold many gradients on purpose, side by side.
                memory, shared = part.data_ptr(), False
            else:
                buffer = part.untyped_storage()
                memory, shared = buffer.data_ptr(), buffer.nbytes() > part.nbytes
            if shared or memory in seen:
                p.grad = grad.clone()
            seen.add(memory)

    def total(self, row: Weights) -> list[Tensor]:
        """Return the weighted sum, which the caller may overwrite.

        Args:
            row: the row of z, which holds the weights of the points.
        """
        if not self.apart:
            sums = []
            for p, total in zip(self._params, self._wide, strict=True):
                sums.append(torch.zeros_like(total) if p.grad is None else p.grad)
                p.grad = None
            sums = locals_of(sums)
            # A view into DDP's bucket would be overwritten by the next backward pass.
            return list(map(torch.clone, sums)) if self._in_buckets else sums
        return combine(self._kept, row, self._safeguard, self._norm)

    def clear(self) -> None:
        """Discard all gradients, and set ``.grad`` to None."""
        self._kept.clear()
        for p in self._params:
            p.grad = None

    def _norm(self, parts: Sequence[Tensor]) -> Tensor:
        return global_norm(likes(parts, self._params))


def combine(
    gradients: Mapping[Point, list[Tensor]],
    row: Weights,
    safeguard: ChangeBound | None,
    norm: Norm,
) -> list[Tensor]:
    """Return b.current G(w_t) + sum_p b.since[p] (G(w_t) - G(p)).

    The safeguard, if there is one, bounds the change since w_{t-1}.

    Examples:
        >>> gradients = {Point.CURRENT: [torch.ones(1)], Point.PREVIOUS: [torch.zeros(1)]}
        >>> combine(gradients, Weights(current=0.5, since_previous=0.5), None, global_norm)
        [tensor([1.])]
    """
    current = gradients[Point.CURRENT]
    changes: dict[Point, list[Tensor]] = {
        point: list(torch._foreach_sub(current, there))
        for point, there in gradients.items()
        if point is not Point.CURRENT
    }
    if safeguard is not None and Point.PREVIOUS in changes:
        # Only STORM's correction is bounded; the change since a snapshot is not.
        scale = safeguard.scale(row, norm(current), norm(changes[Point.PREVIOUS]))
        for part in changes[Point.PREVIOUS]:
            part.mul_(scale.to(part.device))
    total = list(torch._foreach_mul(current, float(row.current)))
    for point, change in changes.items():
        torch._foreach_add_(total, change, alpha=float(row.since(point)))
    return total
