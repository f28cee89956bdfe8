"""Training with early stopping, the same for every contender."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from operator import gt
from typing import Any

import torch
from torch import Tensor, nn

from fcco.data import BlockData, block_loader
from fcco.optim import CompositionalOptimizer, by_name
from fcco.problem.objective import Objective
from fcco.problem.probe import Probe
from fcco.schedules.stopping import keep_best
from fcco.updates import Adam

__all__ = ["Outcome", "compositional", "fit", "held_out", "ordinary", "recommended"]

Step = Callable[[], None]

CHECKS = 20
"""Evaluations of the validation metric in a run."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run: test scores, its validation metric, training seconds."""

    scores: dict[str, float]
    validation: float
    seconds: float


def recommended(
    params: Iterable[Any], objective: Objective, lr: float = 0.01
) -> CompositionalOptimizer:
    """The setting of all problems, untuned."""
    return by_name(
        "sox", params, objective, lr=lr, alpha=0.5, beta=0.5, update=Adam(), updated_slopes=True
    )


def held_out(count: int, seed: int, fraction: float = 0.15) -> tuple[Tensor, Tensor]:
    """Positions to train on and to validate with.

    Examples:
        >>> [len(part) for part in held_out(100, seed=0)]
        [85, 15]
    """
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    cut = round(count * (1 - fraction))
    return order[:cut], order[cut:]


def fit(
    model: nn.Module,
    step: Step,
    schedule: Any,
    steps: int,
    validate: Callable[[nn.Module], float] | None,
) -> tuple[float, float]:
    """Take the steps and keep the best weights by validation; returns that metric and the seconds.

    Args:
        model: trained in place.
        step: one step of the contender.
        schedule: its learning-rate scheduler, or None.
        steps: the number of steps.
        validate: a metric, higher is better, evaluated ``CHECKS`` times; its time is not counted.
            None: the last weights are kept.
    """

    def timed() -> Iterator[float]:
        for _ in range(steps):
            started = time.perf_counter()
            step()
            if schedule is not None:
                schedule.step()
            yield time.perf_counter() - started

    @torch.no_grad()
    def metric() -> float:
        assert validate is not None
        model.eval()
        value = validate(model)
        model.train()
        return value

    found = list(
        keep_best(
            model,
            timed(),
            steps,
            every=max(1, steps // CHECKS),
            metric=None if validate is None else metric,
            better=gt,
        )
    )
    model.eval()
    best = max((value for _, value in found if value is not None), default=-inf)
    return best, sum(sum(seen) for seen, _ in found)


def compositional(
    model: nn.Module,
    objective: Objective,
    data: BlockData[Any],
    *,
    steps: int,
    blocks: int,
    samples: int,
    seed: int,
    extra: Iterable[nn.Parameter] = (),
    loss: Callable[[Any], Tensor] | None = None,
    opt: CompositionalOptimizer | None = None,
) -> tuple[Step, Any]:
    """A step of the recommended optimizer on an objective, and its schedule.

    Args:
        extra: parameters of the objective.
        loss: an ordinary loss of the batch, added through ``Probe.loss``.
        opt: an optimizer instead of the recommended one.
    """
    opt = recommended([*model.parameters(), *extra], objective) if opt is None else opt
    loader = block_loader(
        data,
        objective,
        blocks_per_step=min(blocks, data.num_blocks),
        samples_per_block=samples,
        num_steps=steps,
        seed=seed,
    )
    batches = iter(loader)

    def closure(batch: Any) -> Probe:
        probe = objective.inner(model, batch)
        return probe if loss is None else replace(probe, loss=loss(batch))

    def step() -> None:
        opt.step(partial(closure, next(batches)))

    return step, _linear_decay(opt, steps)


def ordinary(
    model: nn.Module, loss: Callable[[], Tensor], *, steps: int, lr: float
) -> tuple[Step, Any]:
    """A step of Adam on a loss that draws its own batch, and its schedule."""
    opt = torch.optim.Adam(model.parameters(), lr=lr)

    def step() -> None:
        opt.zero_grad()
        loss().backward()
        opt.step()

    return step, _linear_decay(opt, steps)


def _linear_decay(opt: torch.optim.Optimizer, steps: int) -> Any:
    return torch.optim.lr_scheduler.LambdaLR(opt, lambda t: max(1 - t / steps, 0.0))
