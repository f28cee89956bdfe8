"""Sums over parts of a long vector of positive numbers, fast and without cancellation."""

import torch
from torch import Tensor

__all__ = ["range_sums", "suffix_sums", "sum_of_logs"]

_BLOCK = 1024
"""Length of the blocks whose sums are formed first."""
_FACTORS = 16
"""Number of factors whose product is formed before one logarithm is taken."""


def range_sums(x: Tensor, start: Tensor, stop: Tensor, less: Tensor | None = None) -> Tensor:
    """Return the sum of x[start:stop] for each pair of bounds.

    A difference of two cumulative sums would be simpler, but it cancels where the range is a small
    part of the whole.

    Args:
        x: (n,), the numbers.
        start: (k,), the first position of each range.
        stop: (k,), the position after the last one of each range.
        less: (n,), or None. If given, (1 - less) x is summed instead of x.

    Examples:
        >>> range_sums(torch.arange(5.0), torch.tensor([1, 4]), torch.tensor([3, 4]))
        tensor([3., 0.])
    """
    sizes = stop - start
    which = torch.arange(len(start), device=x.device).repeat_interleave(sizes)
    # ``inside`` lists the positions of all ranges one after the other, and ``which`` the range
    # of each position.
    shift = start - (sizes.cumsum(0) - sizes)
    inside = torch.arange(len(which), device=x.device) + shift[which]
    terms = x[inside] if less is None else (1 - less[inside]) * x[inside]
    return x.new_zeros(len(start)).index_add(0, which, terms)


def suffix_sums(x: Tensor, start: Tensor) -> Tensor:
    """Return the sum of x[start:] for each start in 0..n; it is fast if there are few starts.

    Examples:
        >>> suffix_sums(torch.arange(5.0), torch.tensor([0, 4, 5]))
        tensor([10.,  4.,  0.])
    """
    # With many starts one cumulative sum from the end is the fastest way.
    if len(start) * _BLOCK >= len(x):
        sums = x.flip(0).cumsum(0).flip(0)
        return torch.cat([sums, sums.new_zeros(1)])[start]
    count = len(x) // _BLOCK
    blocks = x[: count * _BLOCK].view(-1, _BLOCK).sum(1)
    rest = x[count * _BLOCK :].sum().view(1)
    # later[b] is the sum of block b and of all blocks after it; the final 0 is the empty rest.
    later = torch.cat([blocks, rest, rest.new_zeros(1)]).flip(0).cumsum(0).flip(0)
    block = start // _BLOCK
    stop = ((block + 1) * _BLOCK).clamp(max=len(x))
    return range_sums(x, start, torch.maximum(stop, start)) + later[block + 1]


def sum_of_logs(x: Tensor) -> Tensor:
    """Return the sum of log x, with one logarithm per 16 numbers where their product is safe.

    Examples:
        >>> sum_of_logs(torch.full((40,), 2.0)) / torch.tensor(2.0).log()
        tensor(40.)
        >>> sum_of_logs(torch.full((16,), 1e-30)).round()  # the product would be 0
        tensor(-1105.)
    """
    limits = torch.finfo(x.dtype)
    least, most = x.aminmax()
    # If every factor lies between the 16th roots of the limits, no product over- or underflows.
    safe = least > limits.tiny ** (1 / _FACTORS) and most < limits.max ** (1 / _FACTORS)
    count = len(x) // _FACTORS * _FACTORS if safe else 0
    products = x[:count].view(_FACTORS, -1).prod(0)
    return products.log().sum() + x[count:].log().sum()
