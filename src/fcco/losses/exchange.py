"""How ranks form a joint batch, with two small collectives in the forward pass."""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from zlib import crc32

import torch
import torch.distributed as dist
from torch import Tensor

from fcco.distributed import Ranks

__all__ = ["exchange"]

_PLACE = {"nccl": "cuda", "xccl": "xpu"}
"""Device type of the tensors of a backend; all other backends take tensors on the CPU."""


def exchange(
    ranks: Ranks | None, read: Callable[[], Sequence[Tensor]], made_of: Tensor | None = None
) -> list[Tensor]:
    """Return the columns of the joint batch, rank after rank, with equal numbers on every rank.

    Every rank computes the loss of the joint batch. This rank's part stays attached to its graph,
    with its gradient multiplied by the number of ranks. So the average of the gradients by DDP or
    FSDP2 equals the gradient of one process. A parameter that is used only after the exchange, such
    as a learned temperature, has the gradient of the joint batch on every rank.

    Every rank sends four numbers (32 bytes), and then its samples as the bytes of all columns,
    padded to the longest batch.

    Args:
        ranks: the ranks that exchange batches, or None if there are no others.
        read: a function that checks this rank's batch and returns its columns, which have equal
            length. If it raises on one rank, all ranks raise.
        made_of: the fingerprint of labels and settings, which must be equal on all ranks.

    Examples:
        >>> exchange(None, lambda: [torch.tensor([3, 1])])
        [tensor([3, 1])]
    """
    if ranks is None:
        return list(read())
    place = torch.device(_PLACE.get(dist.get_backend(ranks.group), "cpu"))
    error, columns = None, list[Tensor]()
    try:
        columns = list(read())
    except Exception as raised:
        error = raised
    # All columns travel as bytes in one tensor, so that indices and scores need one collective.
    none = torch.empty(len(columns[0]) if columns else 0, 0, dtype=torch.uint8, device=place)
    sent = torch.cat([none, *(_bytes(column).to(place) for column in columns)], dim=1)
    make = [(str(column.dtype), tuple(column.shape[1:])) for column in columns]
    content = None if made_of is None else int(made_of)
    # Ranks with another dtype, shape or labels would misread the bytes of the others.
    check = crc32(repr((content, make)).encode())
    # The first exchange: whether this rank has an error, the size of its batch, and a hash of its
    # layout and labels. Only if all agree can the second exchange have equal shapes.
    head = torch.tensor([error is not None, *sent.shape, check], device=place)
    faults, counts, widths, makes = torch.stack(ranks.gather(head)).T.tolist()
    if any(faults):
        raise error or RuntimeError("another rank found a fault: see its error message")
    if len(set(makes)) > 1:
        raise ValueError(
            f"the batches of the ranks do not fit together: this rank has {make}, and all ranks "
            f"have {widths} bytes per sample. Do they differ in dtype, in the size of an "
            "embedding, in whether there is a weight, or were their losses built from other labels "
            "or settings?"
        )
    # The second exchange: the batches themselves.
    padded = torch.zeros(max(counts), widths[0], dtype=torch.uint8, device=place)
    padded[: len(sent)] = sent
    received = [part[:n] for part, n in zip(ranks.gather(padded), counts, strict=True)]
    ends = accumulate((_width(column) for column in columns), initial=0)
    return [
        _joint(column, [part[:, a:b] for part in received], ranks)
        for column, (a, b) in zip(columns, pairwise(ends), strict=True)
    ]


def _width(column: Tensor) -> int:
    return math.prod(column.shape[1:]) * column.element_size()


def _bytes(column: Tensor) -> Tensor:
    """Return a column as bytes, (n, width)."""
    flat = column.detach().reshape(len(column), math.prod(column.shape[1:]))
    return flat.contiguous().view(torch.uint8)


def _joint(own: Tensor, parts: list[Tensor], ranks: Ranks) -> Tensor:
    """Return all parts of one column, with this rank's own attached part in its place."""
    whole = []
    for part in parts:
        # Copy first: the strides of a slice with one row or none do not fit another dtype.
        column = part.clone(memory_format=torch.contiguous_format).view(own.dtype)
        whole.append(column.to(own.device).reshape(len(part), *own.shape[1:]))
    # The value is ``own`` and the gradient is ``size`` times that of ``own``.
    whole[ranks.rank] = own + (ranks.size - 1) * (own - own.detach()) if own.requires_grad else own
    return torch.cat(whole)
