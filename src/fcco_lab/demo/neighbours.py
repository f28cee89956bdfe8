"""Neighbourhood components analysis on digits, where a block sees four others per step."""

from collections.abc import Callable
from functools import cache, partial

import torch
from sklearn.neighbors import KNeighborsClassifier

from fcco.data import block_loader, exact_value
from fcco.objectives import NCA
from fcco.optim import BSGD, SOX, CompositionalOptimizer
from fcco.updates import Adam
from fcco_lab.datasets import load_classes
from fcco_lab.datasets.records import Classified
from fcco_lab.demo.part import Outcome, Part, Show

__all__ = ["NEIGHBOURS"]

STEPS, EVALUATIONS, BLOCKS, SAMPLES = 400, 10, 32, 4


@cache
def load() -> tuple[Classified, Classified]:
    """Digits as rows of 64 pixels."""
    first, second = (
        Classified(part.inputs.flatten(1), part.classes) for part in load_classes("digits")
    )
    return first, second


def fit(
    build: Callable[..., CompositionalOptimizer], seed: int, share: float, show: Show
) -> Outcome:
    """Embed digits by a small network, so that the nearest ones are of the same class."""
    train, test = load()
    objective = NCA(train.classes, logarithm=True)
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 16))
    opt = build(model, objective, update=Adam())
    steps = max(1, round(STEPS * share))
    schedule = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.0, steps)
    loader = block_loader(
        train.inputs,
        objective,
        blocks_per_step=BLOCKS,
        samples_per_block=SAMPLES,
        num_steps=steps,
        seed=seed,
    )

    taken: list[float] = []
    values: list[float] = []

    def evaluate(step: int) -> None:
        taken.append(step)
        values.append(exact_value(model, train.inputs, objective, chunk_size=4096))
        show(step / steps, values[-1])

    evaluate(0)
    for step, batch in enumerate(loader, start=1):
        opt.step(partial(objective.inner, model, batch))
        schedule.step()
        if step * EVALUATIONS % steps < EVALUATIONS:
            evaluate(step)
    with torch.no_grad():
        embedded, held_out = model(train.inputs).numpy(), model(test.inputs).numpy()
    neighbours = KNeighborsClassifier().fit(embedded, train.classes.numpy())
    return Outcome(taken, values, float(neighbours.score(held_out, test.classes.numpy())))


_TABLE = partial(SOX, alpha=0.5, updated_slopes=True)

# The best of 0.001, 0.003 and 0.01 for each, with seed 1000.
NEIGHBOURS = Part(
    title="NCA, 4 samples per block",
    cost="steps",
    objective="objective",
    metric="kNN accuracy",
    contenders={
        "naive mini-batch": partial(fit, partial(BSGD, alpha=0.5, lr=0.003)),
        "fcco, β = 0.1": partial(fit, partial(_TABLE, beta=0.1, lr=0.003)),
        "fcco, β = 0.5": partial(fit, partial(_TABLE, beta=0.5, lr=0.003)),
        "fcco, β = 0.9": partial(fit, partial(_TABLE, beta=0.9, lr=0.003)),
        'fcco, β = "auto"': partial(fit, partial(_TABLE, beta="auto", lr=0.003)),
    },
    emphasis='fcco, β = "auto"',
)
