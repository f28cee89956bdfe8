"""Relations between an anchor and a partner, by their positions in a data set.

Each is called with the positions of anchors (b, 1) and partners (b, k) and the columns (b, 1) of
the blocks, and returns a (b, k) tensor. They are classes, so that workers can unpickle them, and so
that an exact value can tell which of them allow sorting.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

__all__ = ["AtRisk", "Efron", "HasLabel", "SameClass"]


@dataclass(frozen=True, eq=False)
class HasLabel:
    """1[the partner is a positive of the block's task], with labels (N, tasks).

    Examples:
        >>> relation = HasLabel(torch.tensor([[True], [False]]))
        >>> relation(torch.tensor([[0]]), torch.tensor([[0, 1]]), torch.tensor([[0]]))
        tensor([[ True, False]])
    """

    labels: Tensor

    def __call__(self, anchors: Tensor, partners: Tensor, columns: Tensor) -> Tensor:
        """The label of each partner."""
        return self.labels[partners, columns]


@dataclass(frozen=True, eq=False)
class SameClass:
    """1[y_j = y_i].

    Examples:
        >>> relation, zero = SameClass(torch.tensor([3, 4, 3])), torch.tensor([[0]])
        >>> relation(zero, torch.tensor([[1, 2]]), zero)
        tensor([[False,  True]])
    """

    classes: Tensor

    def __call__(self, anchors: Tensor, partners: Tensor, columns: Tensor) -> Tensor:
        """Whether the classes are equal."""
        return self.classes[partners] == self.classes[anchors]


@dataclass(frozen=True, eq=False)
class AtRisk:
    """1[t_j >= t_i], the risk set; with ties this is Breslow's likelihood.

    Examples:
        >>> relation, zero = AtRisk(torch.tensor([2.0, 1.0, 2.0])), torch.tensor([[0]])
        >>> relation(zero, torch.tensor([[1, 2]]), zero)
        tensor([[False,  True]])
    """

    times: Tensor

    def __call__(self, anchors: Tensor, partners: Tensor, columns: Tensor) -> Tensor:
        """Whether the partner is at risk when the anchor has its event."""
        return self.times[partners] >= self.times[anchors]

    def shares(self, anchors: Tensor) -> Tensor:
        """The part of the tied events that is taken away: none."""
        return torch.zeros(len(anchors), dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Efron(AtRisk):
    """The risk set; the l-th of d events at one time counts these d with weight 1 - l/d.

    Examples:
        >>> relation = Efron(torch.tensor([1.0, 1.0]), torch.tensor([True, True]))
        >>> relation(torch.tensor([[0], [1]]), torch.tensor([[0, 1]] * 2), torch.tensor([[0]]))
        tensor([[1.0000, 1.0000],
                [0.5000, 0.5000]], dtype=torch.float64)
    """

    events: Tensor
    group: Tensor = field(init=False)
    """The time of each event as a whole number, -1 for censored subjects."""
    share: Tensor = field(init=False)
    """l/d of each event."""

    def __post_init__(self) -> None:
        events = self.events
        _, group = self.times.unique(return_inverse=True)
        group = group.masked_fill(~events, -1)
        # The place of each event among those at its time, in the order of the subjects.
        order = group.argsort(stable=True)
        ordered = group[order]
        first = torch.searchsorted(ordered, ordered)
        place = torch.empty_like(group)
        place[order] = torch.arange(len(group)) - first
        deaths = torch.bincount(group.clamp(min=0)[events], minlength=1)
        share = place.double() / deaths[group.clamp(min=0)].clamp(min=1)
        object.__setattr__(self, "group", group)
        object.__setattr__(self, "share", share.masked_fill(~events, 0.0))

    def __call__(self, anchors: Tensor, partners: Tensor, columns: Tensor) -> Tensor:
        """The weight of each partner in the risk set."""
        tied = self.group[partners] == self.group[anchors]  # anchors are events: not -1
        return super().__call__(anchors, partners, columns).double() - tied * self.share[anchors]

    def shares(self, anchors: Tensor) -> Tensor:
        """The part of the tied events that is taken away, l/d."""
        return self.share[anchors]
