"""How ranks make one batch of theirs: two small collectives in a forward pass, none in backward."""

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
"""Where a backend wants its tensors; others take them from the host."""


def exchange(
    ranks: Ranks | None, read: Callable[[], Sequence[Tensor]], made_of: Tensor | None = None
) -> list[Tensor]:
    """The columns of the joint batch, rank after rank; the same numbers on every rank.

    This rank's part stays attached to its graph, with its gradient times the number of ranks: every
    rank then computes the loss of the joint batch, and DDP's or FSDP2's average of the gradients is
    that of one process. A parameter that is used after the exchange has the same gradient, that of
    the joint batch, on all ranks.

    Every rank sends four numbers (32 bytes) and then its samples, padded to the longest batch: the
    bytes of all columns together.

    Args:
        ranks: None: there are no others.
        read: checks this rank's batch and returns its columns, of equal length; if it raises on one
            rank, all raise.
        made_of: the fingerprint of labels and settings that all ranks must share.

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
    none = torch.empty(len(columns[0]) if columns else 0, 0, dtype=torch.uint8, device=place)
    sent = torch.cat([none, *(_bytes(column).to(place) for column in columns)], dim=1)
    make = [(str(column.dtype), tuple(column.shape[1:])) for column in columns]
    content = None if made_of is None else int(made_of)
    check = crc32(repr((content, make)).encode())
    head = torch.tensor([error is not None, *sent.shape, check], device=place)
    faults, counts, widths, makes = torch.stack(ranks.gather(head)).T.tolist()
    if any(faults):
        raise error or RuntimeError("another rank found a fault, and says which")
    if len(set(makes)) > 1:
        raise ValueError(
            f"ranks bring batches of different make, this one {make}, with {widths} bytes per "
            "sample: do they differ in dtype, in the size of an embedding, in whether there is a "
            "weight, or were their losses built from other labels or settings?"
        )
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
    """All parts of one column, with this rank's own in its place."""
    whole = []
    for part in parts:
        # A copy: a slice of one row, or of none, has strides that fit no other type.
        column = part.clone(memory_format=torch.contiguous_format).view(own.dtype)
        whole.append(column.to(own.device).reshape(len(part), *own.shape[1:]))
    whole[ranks.rank] = own + (ranks.size - 1) * (own - own.detach()) if own.requires_grad else own
    return torch.cat(whole)
