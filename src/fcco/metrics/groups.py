"""Accuracy of the worst group."""

import torch
from torch import Tensor

from fcco.metrics.arguments import check_integers, check_shape

__all__ = ["worst_group_accuracy"]


def worst_group_accuracy(predictions: Tensor, targets: Tensor, groups: Tensor) -> tuple[float, int]:
    """The lowest accuracy of a group, and that group; the lowest number among equal ones.

    Args:
        predictions: (N,) predicted classes, as integers.
        targets: (N,) true classes.
        groups: (N,) integers; numbers that do not occur are ignored.

    Examples:
        >>> predictions, targets = torch.tensor([0, 1, 1, 1]), torch.tensor([0, 1, 0, 1])
        >>> worst_group_accuracy(predictions, targets, torch.tensor([3, 3, 7, 7]))
        (0.5, 7)
    """
    check_shape("predictions", predictions, "N")
    check_shape("targets", targets, len(predictions))
    check_shape("groups", groups, len(predictions))
    for name, ids in (("predictions", predictions), ("targets", targets), ("groups", groups)):
        check_integers(name, ids)
    names, member = groups.unique(return_inverse=True)
    correct = (predictions == targets).double()
    # a mean in float64 of counts below 2^53 is the correctly rounded ratio
    hits = torch.zeros(len(names), dtype=torch.float64, device=groups.device)
    accuracy = hits.index_add(0, member, correct) / member.bincount(minlength=len(names))
    worst = int((accuracy == accuracy.min()).nonzero()[0])
    return float(accuracy[worst]), int(names[worst])
