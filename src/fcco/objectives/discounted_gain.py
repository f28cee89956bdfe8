"""The discounted cumulative gain (DCG) of lists, and NDCG, its ratio to that of the best order."""

import torch
from torch import Tensor

__all__ = ["ideal_dcg", "ndcg"]


def ndcg(
    scores: Tensor, grades: Tensor, owner: Tensor, importance: Tensor, top_k: int | None
) -> float:
    """Return the normalized discounted cumulative gain, as a weighted mean over lists.

    With y the grade at rank r of a list, DCG = sum_{r <= K} (2^y - 1) / log2(1 + r). NDCG divides
    it by the DCG of the best order. Items with equal scores get the mean of the discounts of their
    ranks, which is the expectation over a random order. Lists without a relevant item are left out.

    Args:
        scores: (N,), the scores of the items.
        grades: (N,), the grades of the items.
        owner: (N,), the list of each item, in rising order.
        importance: (Q,), how much each list counts.
        top_k: K, or None for the whole list.

    Examples:
        >>> scores, grades = torch.tensor([0.3, 0.2, 0.1]), torch.tensor([0, 1, 0])
        >>> round(ndcg(scores, grades, torch.zeros(3).long(), torch.ones(1), None), 4)
        0.6309
    """
    gains, count = grades.double().exp2() - 1, len(importance)
    best = ideal_dcg(gains, owner, count, top_k)
    relevant = importance * (best > 0)
    if not relevant.any():
        raise ValueError("grades: no list has a relevant item")
    order = _sorted_within(scores, owner)
    discount = _discounts(owner, count, top_k)
    # Equal scores within a list form a run; all items of a run get its mean discount.
    ordered = scores[order]
    breaks = (ordered[1:] != ordered[:-1]) | (owner[1:] != owner[:-1])
    run = torch.nn.functional.pad(breaks.long().cumsum(0), (1, 0))
    sums = discount.new_zeros(len(discount)).index_add(0, run, discount)
    discount = (sums / run.bincount(minlength=len(discount)))[run]
    found = best.new_zeros(count).index_add(0, owner, gains[order] * discount)
    each = found / best.where(best > 0, 1.0)
    return float((relevant * each).sum() / relevant.sum())


def ideal_dcg(gains: Tensor, owner: Tensor, count: int, top_k: int | None) -> Tensor:
    """Return the DCG of the best order of each list."""
    order = _sorted_within(gains, owner)
    discounted = gains[order] * _discounts(owner, count, top_k)
    return discounted.new_zeros(count).index_add(0, owner, discounted)


def _sorted_within(keys: Tensor, owner: Tensor) -> Tensor:
    """Return the items list by list, with the largest keys of each list first."""
    # A stable sort by list after the sort by key keeps the order of the keys in every list.
    order = keys.argsort(descending=True, stable=True)
    return order[owner[order].argsort(stable=True)]


def _discounts(owner: Tensor, count: int, top_k: int | None) -> Tensor:
    """Return 1 / log2(1 + rank) of the places of each list, 0 beyond ``top_k``."""
    lengths = torch.bincount(owner, minlength=count)
    starts = lengths.cumsum(0) - lengths
    rank = torch.arange(len(owner), device=owner.device) - starts[owner] + 1
    discount = 1 / torch.log2(1 + rank.double())
    return discount if top_k is None else discount.where(rank <= top_k, 0)
