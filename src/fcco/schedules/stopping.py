"""Early stopping: looks at a metric between steps, and the weights that did best."""

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from math import inf
from operator import ge
from typing import TypeVar

from torch import nn

__all__ = ["looks"]

Seen = TypeVar("Seen")


def looks(
    network: nn.Module,
    steps: Iterable[Seen],
    num_steps: int,
    *,
    every: int,
    metric: Callable[[], float] | None,
    patience: float = inf,
    better: Callable[[float, float], bool] = ge,
) -> Iterator[tuple[list[Seen], float | None]]:
    """Take steps; every few yield what they gave, and the metric if there is one.

    At the end the network has the weights of the look with the highest metric; without a metric it
    keeps the last ones.

    Args:
        network: that the steps train in place.
        steps: each item is a step, taken when it is asked for.
        num_steps: how many there are, the last of which is looked at.
        every: steps between two looks.
        metric: of the network as it is; higher is better.
        patience: looks without a rise, after which it stops.
        better: whether a metric replaces the highest; by default the later of equals does.

    Examples:
        >>> import torch
        >>> network = torch.nn.Linear(1, 1)
        >>> def steps():
        ...     for w in (1.0, 2.0, 3.0, 4.0):
        ...         torch.nn.init.constant_(network.weight, w)
        ...         yield w
        >>> def metric():
        ...     return 9 - abs(network.weight.item() - 2)
        >>> list(looks(network, steps(), 4, every=1, metric=metric, patience=1))
        [([1.0], 8.0), ([2.0], 9.0), ([3.0], 8.0)]
        >>> network.weight.item()
        2.0
    """
    best, weights, since = -inf, None, 0
    seen: list[Seen] = []
    for number, given in enumerate(steps, start=1):
        seen.append(given)
        if number % every and number < num_steps:
            continue
        value = None if metric is None else metric()
        yield seen, value
        seen = []
        if value is None:
            continue
        since = 0 if value > best else since + 1
        if better(value, best):
            best, weights = value, deepcopy(network.state_dict())
        if since >= patience:
            break
    if weights is not None:
        network.load_state_dict(weights)
