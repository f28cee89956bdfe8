"""Functions for parameters that are sharded over ranks, as FSDP2 does with DTensors."""

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor, Placement

__all__ = ["cut", "global_norm", "is_sharded", "like", "likes", "local", "locals_of", "written"]


_PLAIN = (Tensor, torch.nn.Parameter)
"""Types that are never sharded. Comparing types is fast, and a step does it dozens of times."""


def is_sharded(tensor: Tensor) -> bool:
    """Return whether ``tensor`` is a DTensor.

    Importing DTensor takes a second. If nobody has imported it, no tensor can be one.

    Examples:
        >>> is_sharded(torch.zeros(2))
        False
    """
    if type(tensor) in _PLAIN:
        return False
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Tensor) -> Tensor:
    """Return this rank's part of a DTensor, which shares its memory; other tensors as they are.

    Operations on single entries work on local parts, without communication.

    Examples:
        >>> z = torch.zeros(2)
        >>> local(z) is z
        True
    """
    if type(tensor) in _PLAIN or not is_sharded(tensor):
        return tensor
    with torch.no_grad():  # otherwise it would be a view that autograd tracks
        part: Tensor = tensor.to_local()  # type: ignore[attr-defined]
    return part


def locals_of(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return ``local`` of each tensor.

    Examples:
        >>> locals_of([torch.zeros(1)])
        [tensor([0.])]
    """
    parts = list(tensors)
    for j, tensor in enumerate(parts):
        if type(tensor) not in _PLAIN:
            parts[j] = local(tensor)
    return parts


def like(part: Tensor, whole: Tensor) -> Tensor:
    """Return ``part`` as this rank's part of a tensor laid out like ``whole``; it undoes ``local``.

    Examples:
        >>> like(part := torch.ones(2), torch.zeros(2)) is part
        True
    """
    if not is_sharded(whole):
        return part
    return _wrap(part, whole, whole.placements, whole.shape, whole.stride())  # type: ignore[attr-defined]


def likes(parts: Sequence[Tensor], wholes: Sequence[Tensor]) -> list[Tensor]:
    """Return ``like`` of each pair of tensors; it undoes ``locals_of``.

    Examples:
        >>> likes([torch.ones(1)], [torch.zeros(1)])
        [tensor([1.])]
    """
    joined = list(parts)
    for j, whole in enumerate(wholes):
        if type(whole) not in _PLAIN:
            joined[j] = like(parts[j], whole)
    return joined


def cut(whole: Tensor, like: Tensor) -> Tensor:
    """Return ``whole``, which every rank has, laid out like ``like``, without communication.

    Examples:
        >>> cut(whole := torch.ones(2), torch.zeros(2)) is whole
        True
    """
    if not is_sharded(like) or is_sharded(whole):
        return whole
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = like.device_mesh, like.placements  # type: ignore[attr-defined]
    return distribute_tensor(whole.to(like.device), mesh, placements, src_data_rank=None)


def written(params: Sequence[Tensor]) -> None:
    """Tell autograd that the local parts were written to.

    A DTensor does not notice it. A graph that is still alive would silently give wrong gradients.
    """
    for p in params:
        if type(p) not in _PLAIN and is_sharded(p):
            torch.autograd.graph.increment_version(p)


def global_norm(tensors: Sequence[Tensor]) -> Tensor:
    """Return the Euclidean norm of all entries of all ranks, in float64.

    Sharded and other tensors may mix. It takes one small reduction for every layout in which
    tensors are sharded.

    Examples:
        >>> global_norm([torch.tensor([3.0]), torch.tensor([[4.0]])])
        tensor(5., dtype=torch.float64)
    """
    # The squares of float32 entries below 1e-23 or above 1e19 would be 0 or infinite in float32.
    norms = torch._foreach_norm(locals_of(tensors), dtype=torch.float64)
    layouts: dict[Any, list[int]] = {}
    for j, tensor in enumerate(tensors):
        if is_sharded(tensor):
            layouts.setdefault((tensor.device_mesh, tensor.placements), []).append(j)  # type: ignore[attr-defined]
    if not layouts:
        return _joined(norms)
    parts = [norm for norm, tensor in zip(norms, tensors, strict=True) if not is_sharded(tensor)]
    for members in layouts.values():
        # Squared norms add up over the ranks that divide these tensors.
        square = _joined([norms[j] for j in members]).square()
        parts.append(_summed(square, tensors[members[0]]).sqrt())
    return _joined(parts)


def _joined(norms: Sequence[Tensor]) -> Tensor:
    """Return the norm of norms, which may be on several devices."""
    device = norms[0].device
    total: Tensor = torch.linalg.vector_norm(torch.stack([norm.to(device) for norm in norms]))
    return total


def _summed(square: Tensor, whole: Tensor) -> Tensor:
    """Return the sum of ``square`` over the ranks among which ``whole`` is divided."""
    from torch.distributed.tensor import Partial, Replicate

    # A replicated dimension holds the same number on all ranks, and must not be added up.
    placements = [
        Replicate() if placement.is_replicate() else Partial()
        for placement in whole.placements  # type: ignore[attr-defined]
    ]
    total: Tensor = _wrap(square, whole, placements).full_tensor()
    return total


def _wrap(part: Tensor, whole: Any, placements: "Sequence[Placement]", *layout: Any) -> "DTensor":
    from torch.distributed.tensor import DTensor

    shape, stride = layout or (None, None)
    return DTensor.from_local(
        part, whole.device_mesh, placements, run_check=False, shape=shape, stride=stride
    )
