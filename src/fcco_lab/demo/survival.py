"""Cox regression with one patient per step, on GBSG2 (breast cancer, comes with lifelines)."""

from collections.abc import Callable
from functools import cache, partial
from itertools import chain, islice, repeat
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from fcco.data import WithIndex
from fcco.losses import CoxLoss
from fcco.objectives import Cox
from fcco_lab.demo.part import Outcome, Part, Show

__all__ = ["SURVIVAL"]

PASSES, EVALUATIONS, HELD_OUT = 5, 20, 172

Criterion = Callable[[Tensor, Tensor], Tensor]


class Patients(NamedTuple):
    """Standardized covariates, times, and whether the event was observed."""

    x: Tensor
    times: Tensor
    events: Tensor


@cache
def load() -> tuple[Patients, Patients]:
    """A training and a test set, the same for all seeds."""
    import pandas
    from lifelines.datasets import load_gbsg2

    table = load_gbsg2()
    columns = pandas.get_dummies(table.drop(columns=["time", "cens"]), drop_first=True, dtype=float)
    x = torch.tensor(((columns - columns.mean()) / columns.std()).to_numpy(), dtype=torch.float32)
    times, events = (
        torch.tensor(table["time"].to_numpy()),
        torch.tensor(table["cens"].to_numpy() == 1),
    )
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    test, train = order[:HELD_OUT], order[HELD_OUT:]
    first, second = (Patients(x[rows], times[rows], events[rows]) for rows in (train, test))
    return first, second


@cache
def optimum() -> float:
    """The smallest objective of a linear model, by L-BFGS on all patients of the training set."""
    train, _ = load()
    objective = Cox(train.times, train.events)
    weights = torch.zeros(train.x.shape[1], dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        solver.zero_grad()
        loss = objective.exact(train.x.double() @ weights)
        loss.backward()
        return loss

    solver.step(closure)
    return float(closure().detach())


def in_batch(train: Patients) -> Criterion:
    """The usual loss: the partial likelihood of the batch, as if there were no other patients."""

    def loss(scores: Tensor, index: Tensor) -> Tensor:
        order = train.times[index].argsort(descending=True)
        scores, events = scores[order], train.events[index][order]
        return ((scores.logcumsumexp(0) - scores) * events).sum() / events.sum().clamp(min=1)

    return loss


def remembered(train: Patients) -> Criterion:
    """The objective of all patients, at the scores that are remembered."""
    return CoxLoss(train.times, train.events)


def fit(
    make: Callable[[Patients], Criterion],
    batch_size: int,
    lr: float,
    seed: int,
    share: float,
    show: Show,
) -> Outcome:
    """An ordinary loop, in which only the criterion differs."""
    train, test = load()
    torch.manual_seed(seed)
    model = torch.nn.Linear(train.x.shape[1], 1)
    criterion, objective, best = make(train), Cox(train.times, train.events), optimum()
    loader = DataLoader(WithIndex(TensorDataset(train.x)), batch_size, shuffle=True)
    steps = max(1, round(PASSES * share * len(loader)))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)

    passes, gaps = [], []

    @torch.no_grad()
    def evaluate(step: int) -> None:
        passes.append(step / len(loader))
        gaps.append(float(objective.exact(model(train.x))) - best)
        show(step / steps, gaps[-1])

    evaluate(0)
    batches = islice(chain.from_iterable(repeat(loader)), steps)
    for step, (inputs, index) in enumerate(batches, start=1):
        criterion(model(inputs)[:, 0], index).backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step * EVALUATIONS % steps < EVALUATIONS:
            evaluate(step)
    with torch.no_grad():
        metric = objective.on(test.times, test.events).metric(model(test.x))
    return Outcome(passes, gaps, metric)


# The best of 0.003, 0.01, 0.03 and 0.1 for each, with seed 1000; the first learns with none.
SURVIVAL = Part(
    title="Cox, 1 patient per step",
    cost="passes over the data",
    objective="objective − optimum",
    metric="C-index",
    contenders={
        "loss of the batch, 1 patient": partial(fit, in_batch, 1, 0.01),
        "loss of the batch, 64 patients": partial(fit, in_batch, 64, 0.03),
        "fcco CoxLoss, 1 patient": partial(fit, remembered, 1, 0.03),
    },
    emphasis="fcco CoxLoss, 1 patient",
)
