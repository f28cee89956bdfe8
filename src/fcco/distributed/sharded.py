"""Parameters sharded over ranks (DTensors, as FSDP2 makes them): local parts and global norms."""

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor, Placement

__all__ = ["cut", "global_norm", "is_sharded", "like", "likes", "local", "locals_of", "written"]


_PLAIN = (Tensor, torch.nn.Parameter)
"""Told apart by type at once: a step asks dozens of times."""


def is_sharded(tensor: Tensor) -> bool:
    """Whether ``tensor`` is a DTensor.

    Importing DTensor takes a second, and nobody has one who did not import it.

    Examples:
        >>> is_sharded(torch.zeros(2))
        False
    """
    if type(tensor) in _PLAIN:
        return False
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a DTensor, sharing its memory; any other tensor as it is.

    Everything that works entry by entry works on local parts, and asks no other rank.

    Examples:
        >>> z = torch.zeros(2)
        >>> local(z) is z
        True
    """
    if type(tensor) in _PLAIN or not is_sharded(tensor):
        return tensor
    with torch.no_grad():  # else a view that autograd tracks
        part: Tensor = tensor.to_local()  # type: ignore[attr-defined]
    return part


def locals_of(tensors: Iterable[Tensor]) -> list[Tensor]:
    """``local`` of each.

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
    """``part`` as this rank's part of a tensor laid out as ``whole`` is; undoes ``local``.

    Examples:
        >>> like(part := torch.ones(2), torch.zeros(2)) is part
        True
    """
    if not is_sharded(whole):
        return part
    return _wrap(part, whole, whole.placements, whole.shape, whole.stride())  # type: ignore[attr-defined]


def likes(parts: Sequence[Tensor], wholes: Sequence[Tensor]) -> list[Tensor]:
    """``like`` of each; undoes ``locals_of``.

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
    """``whole``, which every rank has, laid out as ``like`` is; nothing is sent.

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

    A DTensor does not notice, and a graph still alive would give wrong gradients in silence.
    """
    for p in params:
        if type(p) not in _PLAIN and is_sharded(p):
            torch.autograd.graph.increment_version(p)


def global_norm(tensors: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of all entries, of all ranks; sharded and other tensors may be mixed.

    One small reduction for every way in which tensors are sharded.

    Examples:
        >>> global_norm([torch.tensor([3.0]), torch.tensor([[4.0]])])
        tensor(5.)
    """
    norms = torch._foreach_norm(locals_of(tensors))
    layouts: dict[Any, list[int]] = {}
    for j, tensor in enumerate(tensors):
        if is_sharded(tensor):
            layouts.setdefault((tensor.device_mesh, tensor.placements), []).append(j)  # type: ignore[attr-defined]
    if not layouts:
        return _joined(norms)
    parts = [norm for norm, tensor in zip(norms, tensors, strict=True) if not is_sharded(tensor)]
    for members in layouts.values():
        square = _joined([norms[j] for j in members]).square()
        parts.append(_summed(square, tensors[members[0]]).sqrt())
    return _joined(parts)


def _joined(norms: Sequence[Tensor]) -> Tensor:
    """The norm of norms, which may lie on several devices."""
    device = norms[0].device
    total: Tensor = torch.linalg.vector_norm(torch.stack([norm.to(device) for norm in norms]))
    return total


def _summed(square: Tensor, whole: Tensor) -> Tensor:
    """The sum of ``square`` over the ranks among which ``whole`` is divided."""
    from torch.distributed.tensor import Partial, Replicate

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
