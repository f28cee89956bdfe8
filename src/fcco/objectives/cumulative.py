"""Sums of many positive numbers where few of them are wanted: fast, and without cancellation."""

import torch
from torch import Tensor

__all__ = ["range_sums", "suffix_sums", "sum_of_logs"]

_BLOCK = 1024
"""Numbers that are added before the sums of blocks are."""
_FACTORS = 16
"""Numbers that are multiplied before one logarithm is taken of them."""


def range_sums(x: Tensor, start: Tensor, stop: Tensor, less: Tensor | None = None) -> Tensor:
    """sum of x[start:stop] for each pair of bounds; not a difference of cumulative sums.

    With ``less``, as x, of (1 - less) x.

    Examples:
        >>> range_sums(torch.arange(5.0), torch.tensor([1, 4]), torch.tensor([3, 4]))
        tensor([3., 0.])
    """
    sizes = stop - start
    which = torch.arange(len(start), device=x.device).repeat_interleave(sizes)
    shift = start - (sizes.cumsum(0) - sizes)
    inside = torch.arange(len(which), device=x.device) + shift[which]
    terms = x[inside] if less is None else (1 - less[inside]) * x[inside]
    return x.new_zeros(len(start)).index_add(0, which, terms)


def suffix_sums(x: Tensor, start: Tensor) -> Tensor:
    """sum of x[start:] for each start, 0..n, of which there are few.

    Examples:
        >>> suffix_sums(torch.arange(5.0), torch.tensor([0, 4, 5]))
        tensor([10.,  4.,  0.])
    """
    if len(start) * _BLOCK >= len(x):
        sums = x.flip(0).cumsum(0).flip(0)
        return torch.cat([sums, sums.new_zeros(1)])[start]
    count = len(x) // _BLOCK
    blocks = x[: count * _BLOCK].view(-1, _BLOCK).sum(1)
    rest = x[count * _BLOCK :].sum().view(1)
    # Of each block and all after it; beyond the last one there is nothing.
    later = torch.cat([blocks, rest, rest.new_zeros(1)]).flip(0).cumsum(0).flip(0)
    block = start // _BLOCK
    stop = ((block + 1) * _BLOCK).clamp(max=len(x))
    return range_sums(x, start, torch.maximum(stop, start)) + later[block + 1]


def sum_of_logs(x: Tensor) -> Tensor:
    """sum of log x, by the logarithms of products where none of these can leave the range.

    Examples:
        >>> sum_of_logs(torch.full((40,), 2.0)) / torch.tensor(2.0).log()
        tensor(40.)
        >>> sum_of_logs(torch.full((16,), 1e-30)).round()  # the product would be 0
        tensor(-1105.)
    """
    limits = torch.finfo(x.dtype)
    least, most = x.aminmax()
    safe = least > limits.tiny ** (1 / _FACTORS) and most < limits.max ** (1 / _FACTORS)
    count = len(x) // _FACTORS * _FACTORS if safe else 0
    products = x[:count].view(_FACTORS, -1).prod(0)
    return products.log().sum() + x[count:].log().sum()
