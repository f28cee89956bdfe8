"""Early stopping: evaluate a metric between steps and keep the best weights."""

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from math import inf
from operator import ge
from typing import TypeVar

from torch import nn

__all__ = ["keep_best"]

Seen = TypeVar("Seen")


def keep_best(
    network: nn.Module,
    steps: Iterable[Seen],
    num_steps: int,
    *,
    every: int,
    metric: Callable[[], float] | None,
    patience: float = inf,
    better: Callable[[float, float], bool] = ge,
) -> Iterator[tuple[list[Seen], float | None]]:
    """Take steps, and after every few of them yield their results and the metric.

    At the end the network has the weights with the highest metric, or the last weights if there is
    no metric.

    Args:
        network: the network that the steps train in place.
        steps: an iterator that takes one step for each item.
        num_steps: the number of steps. The metric is evaluated after the last one, too.
        every: the number of steps between two evaluations.
        metric: a function that evaluates the current network; higher is better. Or None.
        patience: the number of evaluations without an improvement after which training stops.
        better: a function that decides whether a metric replaces the best one. By default, of two
            equal metrics the later one is kept.

    Examples:
        >>> import torch
        >>> network = torch.nn.Linear(1, 1)
        >>> def steps():
        ...     for w in (1.0, 2.0, 3.0, 4.0):
        ...         torch.nn.init.constant_(network.weight, w)
        ...         yield w
        >>> def metric():
        ...     return 9 - abs(network.weight.item() - 2)
        >>> list(keep_best(network, steps(), 4, every=1, metric=metric, patience=1))
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
        # Patience counts evaluations without a strict improvement, whatever ``better`` keeps.
        since = 0 if value > best else since + 1
        if better(value, best):
            best, weights = value, deepcopy(network.state_dict())
        if since >= patience:
            break
    if weights is not None:
        network.load_state_dict(weights)
