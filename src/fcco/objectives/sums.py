"""Sums of a function of score differences over all pairs, without forming all pairs.

G(a) = sum_j l(s_j - a) is wanted at many a, the scores of the anchors, for the scores s of all
partners. All of it is computed in float64, and none of it subtracts large numbers of equal size.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["CACHED", "PRODUCTS", "Tails", "by_pairs", "interpolated", "tails"]

CACHED = 1 << 16
"""Pairs that are formed at a time."""
PRODUCTS = 1 << 19
"""The same where they are products of matrices, which pay off when they are large."""
NODES = 24
"""Of the polynomial on an interval of width 2."""
REACH = 40.0
"""Beyond it, exp(-s) is below the rounding error of 1."""


class Tails(NamedTuple):
    """Of the sorted scores s, and of each of their tails s_k, ..., s_n: how many, and moments.

    ``first`` and ``second`` are sums of (s_j - s_k) and (s_j - s_k)^2. The last tail, of no score,
    has the start infinity.
    """

    start: Tensor
    number: Tensor
    first: Tensor
    second: Tensor

    def above(self, bounds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Sums of 1, d and d^2 with d = s_j - bound, over the scores above each bound."""
        k = torch.searchsorted(self.start, bounds, right=True)
        gap = (self.start[k] - bounds).nan_to_num(posinf=0.0)
        count, first = self.number[k], self.first[k]
        return count, first + count * gap, self.second[k] + gap * (2 * first + count * gap)


def tails(scores: Tensor) -> Tails:
    """The moments of all tails, in O(n log n): tails of 1, 2, 4, ... scores are joined.

    Every term is positive, so scores of 1e8 with differences of 1 lose no digits.

    Examples:
        >>> tails(torch.tensor([3.0, 1.0])).above(torch.tensor([0.0]))
        (tensor([2.], dtype=torch.float64), tensor([4.], dtype=torch.float64), \
tensor([10.], dtype=torch.float64))
    """
    start = scores.double().sort().values
    n, width = len(start), 1
    count = torch.ones_like(start)
    first, second = torch.zeros_like(start), torch.zeros_like(start)
    while width < n:
        gap = start[width:] - start[:-width]
        more, one, two = count[width:].clone(), first[width:].clone(), second[width:].clone()
        second[:-width] += two + gap * (2 * one + more * gap)
        first[:-width] += one + more * gap
        count[:-width] += more
        width *= 2
    end = start.new_zeros(1)
    return Tails(
        torch.cat([start, end + torch.inf]),
        *(torch.cat([part, end]) for part in (count, first, second)),
    )


def by_pairs(function: Callable[[Tensor], Tensor], partners: Tensor, anchors: Tensor) -> Tensor:
    """G at the anchors by forming all pairs, few at a time: O(n) for each anchor.

    Examples:
        >>> by_pairs(torch.exp, torch.zeros(3), torch.zeros(2))
        tensor([3., 3.], dtype=torch.float64)
    """
    partners, anchors = partners.double(), anchors.double()
    some = max(1, CACHED // max(len(partners), 1))
    sums = [function(partners - part[:, None]).sum(1) for part in anchors.split(some)]
    return torch.cat(sums) if sums else anchors


def interpolated(
    function: Callable[[Tensor], Tensor],
    far: Callable[[Tensor, Tensor], Tensor],
    partners: Tensor,
    anchors: Tensor,
) -> Tensor:
    """G at the anchors, for l like the sigmoid or the softplus: analytic where |Im s| < pi, 0 at
    -infinity up to exp(s), and constant or linear at infinity up to exp(-s).

    G is then analytic too, and on an interval of width 2 the polynomial through 24 Chebyshev nodes
    is off by less than 4 M r^-24 / (r - 1) for each pair, with r = 6.16 for the ellipse that
    reaches up to |Im s| = 3, and M the largest |l| on it: 1e-18 M, less than rounding (Trefethen,
    Approximation Theory and Approximation Practice, Theorem 8.2). So G is needed only at the nodes
    of the intervals that hold anchors, and only partners within ``REACH`` have to be seen.

    Args:
        function: l.
        far: the sum of l over partners at infinity, given how many they are and the sum of s.
        partners: (n,).
        anchors: (k,).

    Examples:
        >>> interpolated(torch.sigmoid, lambda count, total: count, torch.zeros(3), torch.zeros(2))
        tensor([1.5000, 1.5000], dtype=torch.float64)
    """
    every = tails(partners)
    scores = every.start[:-1]
    ordered, order = anchors.double().sort()
    cells, sizes = (ordered / 2).floor().unique_consecutive(return_counts=True)
    low, high = 2 * cells - REACH, 2 * cells + 2 + REACH
    starts = torch.searchsorted(scores, low).tolist()
    stops = torch.searchsorted(scores, high, right=True).tolist()
    angles = (torch.arange(NODES, dtype=torch.float64) + 0.5) * (math.pi / NODES)
    degrees = torch.arange(NODES, dtype=torch.float64)
    sums = []
    for k, some in enumerate(ordered.split(sizes.tolist())):
        middle, near = 2 * cells[k] + 1, scores[starts[k] : stops[k]]
        if len(some) <= NODES:
            total = by_pairs(function, near, some)
        else:
            coefficients = (degrees[:, None] * angles).cos() @ by_pairs(
                function, near, middle + angles.cos()
            )
            coefficients[0] /= 2
            place = (some - middle).clamp(-1, 1).acos()
            total = (place[:, None] * degrees).cos() @ coefficients * (2 / NODES)
        count, rest, _ = every.above(high[k, None])
        sums.append(total + far(count, rest + count * (high[k] - some)))
    return torch.cat(sums)[order.argsort()]
