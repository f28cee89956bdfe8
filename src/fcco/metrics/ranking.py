"""Quality of rankings, query by query."""

import torch
from torch import Tensor

from fcco.metrics.arguments import (
    check_finite,
    check_integers,
    check_numbers,
    check_shape,
    check_top,
)

__all__ = ["ndcg"]


def ndcg(
    scores: Tensor,
    grades: Tensor,
    lengths: Tensor,
    k: int | None = None,
    *,
    weights: Tensor | None = None,
) -> float:
    """Normalized discounted cumulative gain, the mean over queries.

    With y the grade at rank r of a query,

        DCG = sum_{r <= k} (2^y - 1) / log2(1 + r),    NDCG = DCG / (DCG of the best order).

    Items with equal scores get the mean of the discounts of their ranks, which is the expectation
    over a random order. Queries without a relevant item have no best order and are left out.

    Args:
        scores: (N,), the items of the first query, then those of the second, and so on.
        grades: (N,) relevance, at least 0.
        lengths: (Q,) integers, how many items each query has; their sum is N.
        k: only the first k ranks count; all of them by default.
        weights: (Q,), how much each query counts in the mean; all alike by default.

    Examples:
        >>> scores, grades = torch.tensor([0.3, 0.2, 0.1, 5.0]), torch.tensor([0, 1, 0, 0])
        >>> round(ndcg(scores, grades, torch.tensor([3, 1])), 4)
        0.6309
        >>> ndcg(scores, grades, torch.tensor([3, 1]), k=1)
        0.0
    """
    check_shape("scores", scores, "N")
    check_shape("grades", grades, len(scores))
    check_shape("lengths", lengths, "Q")
    check_numbers("scores", scores)
    check_finite("grades", grades)
    check_integers("lengths", lengths)
    if (grades < 0).any():
        raise ValueError(f"grades must be at least 0, got {grades.min().item()}")
    if (lengths < 0).any() or int(lengths.sum()) != len(scores):
        raise ValueError(
            f"lengths must be at least 0 and sum to {len(scores)}, got a least of "
            f"{int(lengths.min())} and a sum of {int(lengths.sum())}"
        )
    if k is not None:
        check_top(k)
    gains = grades.double().exp2() - 1
    if not gains.sum().isfinite():
        raise ValueError(f"grades: 2^y overflows at y = {grades.max().item()}")
    lengths = lengths.to(scores.device, torch.int64)
    query = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    starts = lengths.cumsum(0) - lengths
    # position j of the sorted items is rank j - start + 1 of its query, for every sort key
    rank = torch.arange(len(scores), device=scores.device) - starts[query] + 1
    discount = (1 + rank).double().log2().reciprocal()
    if k is not None:
        discount = discount.where(rank <= k, 0)

    def total(gain: Tensor, discount: Tensor) -> Tensor:
        return discount.new_zeros(len(lengths)).index_add(0, query, gain * discount)

    order = _sorted_within(scores.detach(), query)
    best = total(gains[_sorted_within(gains, query)], discount)
    found = total(gains[order], _tied_mean(discount, scores[order], query))
    relevant = best > 0
    if not relevant.any():
        raise ValueError("grades: no query has a relevant item")
    each = found[relevant] / best[relevant]
    if weights is None:
        return float(each.mean())
    check_shape("weights", weights, len(lengths))
    share = weights[relevant].double()
    return float(share @ each / share.sum())


def _sorted_within(keys: Tensor, query: Tensor) -> Tensor:
    """Positions of the items, query by query, each query's largest keys first."""
    order = keys.argsort(descending=True, stable=True)
    return order[query[order].argsort(stable=True)]


def _tied_mean(discount: Tensor, scores: Tensor, query: Tensor) -> Tensor:
    """Discounts of sorted items, averaged over runs of equal scores within a query."""
    breaks = (scores[1:] != scores[:-1]) | (query[1:] != query[:-1])
    run = torch.nn.functional.pad(breaks.cumsum(0), (1, 0))
    sums = discount.new_zeros(len(discount)).index_add(0, run, discount)
    return (sums / run.bincount(minlength=len(discount)))[run]
