"""Exact passes over a data set: the chunks that ``snapshot`` sums, and a value to monitor."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from fcco.data.tasks import TaskData
from fcco.probe import Closure, Probe

__all__ = ["exact_pass", "exact_value"]


class ChunkedObjective(Protocol):
    """An objective whose exact inner values are sums over chunks of a data set."""

    num_blocks: int

    def partial(self, model: Any, inputs: Tensor, labels: Tensor, scale: Tensor) -> Probe:
        """What one chunk adds."""

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """f_i(u^i)."""


def exact_pass(
    model: Callable[[Tensor], Tensor],
    dataset: TaskData,
    objective: ChunkedObjective,
    *,
    chunk_size: int = 1024,
) -> list[Closure]:
    """The closures of one exact pass, for ``opt.snapshot``.

    Every chunk reports all tasks, scaled so that the average by samples over the chunks is the
    exact inner value.

    Examples:
        >>> from fcco.objectives import MultiTaskAUC
        >>> data = TaskData.from_classes(torch.rand(6, 2), torch.tensor([0, 1, 2, 0, 1, 2]))
        >>> closures = exact_pass(torch.nn.Linear(2, 3), data, MultiTaskAUC(3), chunk_size=4)
        >>> [closure().samples for closure in closures]
        [4, 2]
    """
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, got {chunk_size}")
    weights = len(dataset) / torch.stack([dataset.positives, dataset.negatives]).double()

    def closure(start: int) -> Closure:
        rows = slice(start, start + chunk_size)

        def call() -> Probe:
            inputs, labels = dataset.inputs[rows], dataset.labels[rows]
            scale = (weights / len(inputs)).to(inputs.dtype)
            return objective.partial(model, inputs, labels, scale)

        return call

    return [closure(start) for start in range(0, len(dataset), chunk_size)]


@torch.no_grad()
def exact_value(
    model: Callable[[Tensor], Tensor],
    dataset: TaskData,
    objective: ChunkedObjective,
    *,
    chunk_size: int = 1024,
) -> float:
    """F(w) on the data set, the number to monitor.

    Examples:
        >>> from fcco.objectives import MultiTaskAUC
        >>> data = TaskData.from_classes(torch.zeros(4, 1), torch.tensor([0, 1, 0, 1]))
        >>> exact_value(lambda x: torch.zeros(len(x), 2), data, MultiTaskAUC(2))  # all scores 1/2
        0.5
    """
    u = torch.zeros(())
    for call in exact_pass(model, dataset, objective, chunk_size=chunk_size):
        probe = call()
        u = u + probe.values * (int(probe.samples) / len(dataset))
    return float(objective.outer(u, torch.arange(objective.num_blocks)).mean())
