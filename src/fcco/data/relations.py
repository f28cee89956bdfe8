"""Relations between an anchor and a partner, by their positions in a data set.

Each takes the positions of anchors (b, 1) and partners (b, k) and the columns (b, 1) of the blocks,
and returns a (b, k) tensor. They are module-level functions, so that workers can unpickle them.
"""

from functools import partial

import torch
from torch import Tensor

__all__ = ["at_risk", "efron", "has_label", "same_class"]


def has_label(labels: Tensor, anchors: Tensor, partners: Tensor, columns: Tensor) -> Tensor:
    """1[the partner is a positive of the block's task].

    Examples:
        >>> labels = torch.tensor([[True], [False]])
        >>> has_label(labels, torch.tensor([[0]]), torch.tensor([[0, 1]]), torch.tensor([[0]]))
        tensor([[ True, False]])
    """
    return labels[partners, columns]


def same_class(classes: Tensor, anchors: Tensor, partners: Tensor, columns: Tensor) -> Tensor:
    """1[y_j = y_i].

    Examples:
        >>> classes, zero = torch.tensor([3, 4, 3]), torch.tensor([[0]])
        >>> same_class(classes, zero, torch.tensor([[1, 2]]), zero)
        tensor([[False,  True]])
    """
    return classes[partners] == classes[anchors]


def at_risk(times: Tensor, anchors: Tensor, partners: Tensor, columns: Tensor) -> Tensor:
    """1[t_j >= t_i], the risk set; with ties this is Breslow's likelihood.

    Examples:
        >>> times, zero = torch.tensor([2.0, 1.0, 2.0]), torch.tensor([[0]])
        >>> at_risk(times, zero, torch.tensor([[1, 2]]), zero)
        tensor([[False,  True]])
    """
    return times[partners] >= times[anchors]


def efron(times: Tensor, events: Tensor) -> "partial[Tensor]":
    """The risk set; the l-th of d events at one time counts these d with weight 1 - l/d.

    Examples:
        >>> times, events = torch.tensor([1.0, 1.0]), torch.tensor([True, True])
        >>> relation = efron(times, events)
        >>> relation(torch.tensor([[0], [1]]), torch.tensor([[0, 1]] * 2), torch.tensor([[0]]))
        tensor([[1.0000, 1.0000],
                [0.5000, 0.5000]], dtype=torch.float64)
    """
    _, group = times.unique(return_inverse=True)
    group = group.masked_fill(~events, -1)
    # The place of each event among those at its time, in the order of the subjects.
    order = group.argsort(stable=True)
    ordered = group[order]
    first = torch.searchsorted(ordered, ordered)
    place = torch.empty_like(group)
    place[order] = torch.arange(len(group)) - first
    deaths = torch.bincount(group.clamp(min=0)[events], minlength=1)
    share = place.double() / deaths[group.clamp(min=0)].clamp(min=1)
    return partial(_efron, times, group, share.masked_fill(~events, 0.0))


def _efron(
    times: Tensor, group: Tensor, share: Tensor, anchors: Tensor, partners: Tensor, columns: Tensor
) -> Tensor:
    tied = group[partners] == group[anchors]  # anchors are events, so their group is not -1
    return at_risk(times, anchors, partners, columns).double() - tied * share[anchors]
