"""Cutting a data set in two: alike in classes or events, and never through a query."""

from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from fcco_lab.datasets.records import Classified, Ranked, Survival

__all__ = ["proportional", "split"]

R = TypeVar("R", bound=Classified | Survival | Ranked)


def split(data: R, count: int, *, seed: int) -> tuple[R, R]:
    """About ``count`` samples, and the others; both keep the order.

    Classes, or events and censored samples, have the same share in both. A query is never cut, so
    of a ranking the first part may have a few more or fewer.

    Examples:
        >>> data = Classified(torch.zeros(8, 2), torch.tensor([0, 1] * 4))
        >>> [part.classes.bincount().tolist() for part in split(data, 6, seed=0)]
        [[3, 3], [1, 1]]
    """
    mask = torch.zeros(len(data), dtype=torch.bool)
    if isinstance(data, Ranked):
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(data.lengths), generator=generator)
        if len(order) < 2:
            raise ValueError("there is one query, which cannot be divided into two parts")
        middle = data.lengths[order].cumsum(0) - data.lengths[order] / 2
        taken = min(max(int((middle < count).sum()), 1), len(order) - 1)
        mask = torch.isin(_owner(data), order[:taken])
    else:
        strata = data.classes if isinstance(data, Classified) else data.events.long()
        mask[proportional(strata, count, seed=seed)] = True
    return _pick(data, mask), _pick(data, ~mask)


def _pick(data: R, mask: Tensor) -> R:
    """The samples under the mask, of a ranking the queries of which it covers every document."""
    columns = {key: value[mask] for key, value in vars(data).items() if key != "lengths"}
    if isinstance(data, Ranked):
        columns["lengths"] = data.lengths[_owner(data)[mask].unique()]
    return replace(data, **columns)


def proportional(classes: Tensor, count: int, *, seed: int) -> Tensor:
    """Positions of ``count`` samples, the same share of every class, in their old order.

    Examples:
        >>> rows = proportional(torch.tensor([0] * 8 + [1] * 4), 6, seed=0)
        >>> int((rows < 8).sum()), len(rows)
        (4, 6)
    """
    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed))
    sizes = torch.bincount(classes)
    by_class = order[classes[order].sort(stable=True).indices]
    starts = sizes.cumsum(0) - sizes
    rank = torch.arange(len(classes)) - starts.repeat_interleave(sizes)
    share = (rank + 0.5) / sizes.repeat_interleave(sizes)
    return by_class[share.sort(stable=True).indices[:count]].sort().values


def _owner(data: Ranked) -> Tensor:
    return torch.arange(len(data.lengths)).repeat_interleave(data.lengths)
