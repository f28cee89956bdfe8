"""Sums of a function of score differences over all pairs, without forming all pairs.

The functions here compute G(a) = sum_j l(s_j - a) for many a. Here a are the scores of the anchors
and s_j the scores of the partners. Everything is computed in float64, and nothing subtracts large
numbers of nearly equal size.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["CACHED", "Tails", "by_pairs", "interpolated", "tails"]

CACHED = 1 << 16
"""Number of pairs that are formed at a time, so that they stay in the cache."""
NODES = 24
"""Number of Chebyshev nodes on an interval of width 2."""
REACH = 40.0
"""Distance beyond which exp(-s) is below the rounding error of 1."""


class Tails(NamedTuple):
    """The moments of all tails s_k, ..., s_n of sorted scores s.

    ``start`` is s_k and ``number`` counts the scores of the tail. ``first`` and ``second`` are the
    sums of (s_j - s_k) and (s_j - s_k)^2 over it. The last tail is empty and starts at infinity.
    """

    start: Tensor
    number: Tensor
    first: Tensor
    second: Tensor

    def above(self, bounds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sums of 1, d and d^2 over the scores above each bound; d = s_j - bound."""
        k = torch.searchsorted(self.start, bounds, right=True)
        # Shift the moments from s_k to the bound, with gap = s_k - bound >= 0: all terms are
        # positive. For the empty tail the gap is infinite and must not give inf * 0.
        gap = (self.start[k] - bounds).nan_to_num(posinf=0.0)
        count, first = self.number[k], self.first[k]
        return count, first + count * gap, self.second[k] + gap * (2 * first + count * gap)


def tails(scores: Tensor) -> Tails:
    """Compute the moments of all tails in O(n log n), by joining tails of 1, 2, 4, ... scores.

    Every term is positive, so scores near 1e8 with differences of 1 lose no digits.

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
        # Join the window that begins at k with the one that begins at k + width. The moments of
        # the latter are first shifted from its own start to s_k.
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
    """Compute G at the anchors by forming all pairs, few at a time; O(n) for each anchor.

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
    """Compute G at the anchors by polynomial interpolation, for l like the sigmoid or the softplus.

    Three properties of l are needed. It is analytic where |Im s| < pi. It tends to 0 at -infinity
    as exp(s) does. At infinity it tends to a constant or linear function as exp(-s) does.

    G is then analytic too, and is interpolated on intervals of width 2 through 24 Chebyshev nodes.
    For each pair the error is below 4 M r^-24 / (r - 1). Here r = 6.16 belongs to the ellipse that
    reaches up to |Im s| = 3, and M is the largest |l| on it. This gives 1e-18 M, less than rounding
    (Trefethen, Approximation Theory and Approximation Practice, Theorem 8.2). So G is needed only
    at the nodes of the intervals that hold anchors, and only for partners within ``REACH``.

    Args:
        function: l.
        far: a function that returns the sum of l over far partners, given their number and the sum
            of their s.
        partners: (n,), the scores of the partners.
        anchors: (k,), the scores of the anchors.

    Examples:
        >>> interpolated(torch.sigmoid, lambda count, total: count, torch.zeros(3), torch.zeros(2))
        tensor([1.5000, 1.5000], dtype=torch.float64)
    """
    every = tails(partners)
    scores = every.start[:-1]
    ordered, order = anchors.double().sort()
    # Interval c is [2c, 2c + 2]. Sorted anchors of one interval are neighbours.
    cells, sizes = (ordered / 2).floor().unique_consecutive(return_counts=True)
    low, high = 2 * cells - REACH, 2 * cells + 2 + REACH
    starts = torch.searchsorted(scores, low).tolist()
    stops = torch.searchsorted(scores, high, right=True).tolist()
    angles = (torch.arange(NODES, dtype=torch.float64) + 0.5) * (math.pi / NODES)
    degrees = torch.arange(NODES, dtype=torch.float64)
    sums = []
    for k, some in enumerate(ordered.split(sizes.tolist())):
        middle, near = 2 * cells[k] + 1, scores[starts[k] : stops[k]]
        # With fewer anchors than nodes, forming the pairs directly is cheaper.
        if len(some) <= NODES:
            total = by_pairs(function, near, some)
        else:
            # Chebyshev coefficients by a cosine transform of G at the nodes.
            coefficients = (degrees[:, None] * angles).cos() @ by_pairs(
                function, near, middle + angles.cos()
            )
            coefficients[0] /= 2
            place = (some - middle).clamp(-1, 1).acos()
            total = (place[:, None] * degrees).cos() @ coefficients * (2 / NODES)
        # Partners above the reach count by the limit of l; those below it count 0.
        count, rest, _ = every.above(high[k, None])
        sums.append(total + far(count, rest + count * (high[k] - some)))
    return torch.cat(sums)[order.argsort()]
