"""Two losses that are wrong on a small batch: 1 - F1 and Cox, at batch sizes from 64 to 1."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from fcco.data import WithIndex
from fcco.losses import CoxLoss, F1Loss
from fcco.objectives import Cox
from fcco_lab.benchmark import problem as benchmark
from fcco_lab.benchmark.experiment import in_float64
from fcco_lab.benchmark.optimum import know
from fcco_lab.benchmark.problems.models import linear
from fcco_lab.datasets import load_classes
from fcco_lab.demo.part import Outcome, Part, Show

__all__ = ["COX", "F1", "cox", "load_patients"]

PASSES = 5

Criterion = Callable[[Tensor, Tensor], Tensor]
"""From the outputs of a batch and the positions of its samples to a loss."""


class Problem(NamedTuple):
    """Inputs, the two losses, and the exact objective of the outputs of all samples."""

    x: Tensor
    of_batch: Criterion
    remembering: Callable[[], Criterion]
    exact: Callable[[Tensor], float]


@cache
def rare_digits() -> Problem:
    """Eights among the digits of scikit-learn; every second eight is left out, one in twenty is."""
    train, _ = load_classes("digits")
    eight = train.classes == 8
    kept = ~eight | (eight.cumsum(0) % 2 == 0)
    x, y = train.inputs[kept].flatten(1), eight[kept].float()

    def of_batch(outputs: Tensor, index: Tensor) -> Tensor:
        p = outputs.sigmoid()
        return 1 - 2 * (p * y[index]).sum() / (p.sum() + y[index].sum())

    def remembering() -> Criterion:
        criterion = F1Loss()
        return lambda outputs, index: criterion(outputs.sigmoid(), y[index])

    return Problem(x, of_batch, remembering, lambda out: float(F1Loss().exact(out.sigmoid(), y)))


@cache
def load_patients() -> tuple[Tensor, Tensor, Tensor]:
    """Standardized covariates, times and events of GBSG2 (breast cancer, comes with lifelines)."""
    import pandas
    from lifelines.datasets import load_gbsg2

    table = load_gbsg2()
    columns = pandas.get_dummies(table.drop(columns=["time", "cens"]), drop_first=True, dtype=float)
    x = torch.tensor(((columns - columns.mean()) / columns.std()).to_numpy())
    return x, torch.tensor(table["time"].to_numpy()), torch.tensor(table["cens"].to_numpy() == 1)


@cache
def cox() -> tuple[benchmark.Problem, dict[str, Any]]:
    """Cox regression of a linear score as a problem of the benchmark, and what is known of it."""
    x, times, events = load_patients()
    problem = benchmark.Problem(
        x, lambda: Cox(times, events), linear(x.shape[1]), convex=True, sampling="samples"
    )
    with in_float64():
        return problem, know(problem)


@cache
def patients() -> Problem:
    """Cox regression; the loss of a batch is its partial likelihood, as if no others lived."""
    x, times, events = load_patients()
    objective, least = Cox(times, events), cox()[1]["best"]

    def of_batch(outputs: Tensor, index: Tensor) -> Tensor:
        order = times[index].argsort(descending=True)
        scores, happened = outputs[order], events[index][order]
        each = (scores.logcumsumexp(0) - scores) * happened
        return each.sum() / happened.sum().clamp(min=1)

    return Problem(
        x.float(),
        of_batch,
        lambda: CoxLoss(times, events),
        lambda outputs: float(objective.exact(outputs)) - least,
    )


def train(problem: Problem, criterion: Criterion, size: int, lr: float, passes: float) -> float:
    """An ordinary loop with Adam and a step size that falls to 0; returns the exact objective."""
    model = torch.nn.Linear(problem.x.shape[1], 1)
    loader = DataLoader(WithIndex(TensorDataset(problem.x)), size, shuffle=True)
    steps = max(1, round(passes * len(loader)))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    taken = 0
    while taken < steps:
        for inputs, index in loader:
            criterion(model(inputs)[:, 0], index).backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            taken += 1
            if taken == steps:
                break
    with torch.no_grad():
        return problem.exact(model(problem.x)[:, 0])


def fit(
    load: Callable[[], Problem],
    remembers: bool,
    step_sizes: Mapping[int, float],
    seed: int,
    share: float,
    show: Show,
) -> Outcome:
    """Train once for every batch size."""
    problem = load()
    found: list[float] = []
    for size, lr in step_sizes.items():
        torch.manual_seed(seed)
        criterion = problem.remembering() if remembers else problem.of_batch
        found.append(train(problem, criterion, size, lr, share * PASSES))
        show(len(found) / len(step_sizes), found[-1])
    return Outcome(list(step_sizes), found)


# The step size of every batch size is that of 0.01, 0.03, 0.1, 0.3 with the least worst objective
# over seeds 1000 to 1002; a single sample teaches the loss of the batch nothing with any of them.
F1 = Part(
    title="1 − F1, rare digits",
    cost="batch size",
    objective="1 − F1 of all samples",
    contenders={
        "loss of the batch": partial(fit, rare_digits, False, {64: 0.3, 16: 0.1, 4: 0.03, 1: 0.03}),
        "fcco F1Loss": partial(fit, rare_digits, True, {64: 0.3, 16: 0.1, 4: 0.1, 1: 0.03}),
    },
    shown=(64, 16, 4, 1),
    emphasis=("fcco F1Loss",),
    logarithmic=False,
)

COX = Part(
    title="Cox, breast cancer",
    cost="batch size",
    objective="objective − optimum",
    contenders={
        "loss of the batch": partial(fit, patients, False, {64: 0.1, 16: 0.03, 4: 0.01, 1: 0.01}),
        "fcco CoxLoss": partial(fit, patients, True, {64: 0.1, 16: 0.03, 4: 0.03, 1: 0.01}),
    },
    shown=(64, 16, 4, 1),
    emphasis=("fcco CoxLoss",),
)
