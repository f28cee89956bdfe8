"""Sums of many numbers, fast, and by adding positive terms alone where they are positive."""

import torch
from torch import Tensor

__all__ = ["BLOCK", "ranges", "suffix_sums", "sum_of_logs"]

BLOCK = 1024
"""Numbers that are added before the sums of blocks are: one changed number costs one block."""
_FACTORS = 16
"""Numbers that are multiplied before one logarithm is taken of them."""


def ranges(starts: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers start..start+size-1 of each row, (k, width), and which of them count.

    What lies beyond a row's size repeats its last number, or its start if it has none.

    Examples:
        >>> ranges(torch.tensor([5, 2]), torch.tensor([1, 3]))
        (tensor([[5, 5, 5],
                [2, 3, 4]]), tensor([[ True, False, False],
                [ True,  True,  True]]))
    """
    width = max(int(sizes.max()), 1) if len(sizes) else 1
    place = torch.arange(width, device=starts.device).expand(len(starts), -1)
    sizes = sizes.unsqueeze(1)
    return starts.unsqueeze(1) + torch.minimum(place, (sizes - 1).clamp(min=0)), place < sizes


def sum_of_logs(x: Tensor) -> Tensor:
    """sum log x of positive numbers (n,), by the logarithms of products where these are safe.

    Examples:
        >>> sum_of_logs(torch.full((40,), 2.0)) / torch.tensor(2.0).log()
        tensor(40.)
        >>> sum_of_logs(torch.full((16,), 1e-30)).round()  # the product would be 0
        tensor(-1105.)
    """
    count = len(x) // _FACTORS * _FACTORS
    products = x[:count].view(_FACTORS, -1).prod(0)
    limits = torch.finfo(x.dtype)
    if not ((products >= limits.tiny) & (products <= limits.max)).all():
        return x.log().sum()
    return products.log().sum() + x[count:].log().sum()


def suffix_sums(x: Tensor, starts: Tensor) -> Tensor:
    """sum_{i >= start} x_i for each of the starts, 0..n.

    Examples:
        >>> suffix_sums(torch.arange(5.0), torch.tensor([0, 4, 5]))
        tensor([10.,  4.,  0.])
    """
    if len(starts) * BLOCK >= len(x):
        sums = x.flip(0).cumsum(0).flip(0)
        return torch.cat([sums, sums.new_zeros(1)])[starts]
    count = len(x) // BLOCK
    whole = x[: count * BLOCK].view(-1, BLOCK).sum(1)
    rest = x[count * BLOCK :].sum().unsqueeze(0)
    # Of a block and those after it; beyond the last one there is nothing.
    later = torch.cat([rest.new_zeros(1), rest, whole.flip(0)]).cumsum(0).flip(0)
    block = starts // BLOCK
    stops = ((block + 1) * BLOCK).clamp(max=len(x))
    places, inside = ranges(starts.clamp(max=len(x) - 1), stops - starts)
    return (x[places] * inside).sum(1) + later[block + 1]
