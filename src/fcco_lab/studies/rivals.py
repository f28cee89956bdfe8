"""Each objective on real data, untuned, compared with the usual alternatives."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fcco import metrics, objectives
from fcco.data import AnchorData, Classified, TaskData, binary, imbalanced
from fcco_lab.datasets import load_classes
from fcco_lab.studies.baselines import LOSSES, draws, libauc_step
from fcco_lab.studies.case import Case
from fcco_lab.studies.fitting import Outcome, compositional, fit, held_out, ordinary
from fcco_lab.studies.rivals_embeddings import EMBEDDINGS
from fcco_lab.studies.rivals_structured import STRUCTURED
from fcco_lab.studies.workloads import make_mlp

__all__ = ["PROBLEMS", "rival_cases", "run_rivals"]

STEPS, BATCH, SEEDS = 1000, 256, 5

Scores = dict[str, float]


@cache
def _images(name: str, positive: int | None = None, keep: float = 1.0) -> tuple[Classified, ...]:
    train, test = load_classes(name)
    if positive is not None:
        train = binary(imbalanced(train, positive, keep), positive)
        test = binary(test, positive)
    return tuple(Classified(part.inputs.flatten(1), part.classes) for part in (train, test))


@cache
def _a9a(keep: float) -> tuple[Classified, ...]:
    train, test = load_classes("a9a")
    train, mean = imbalanced(train, 1, keep), train.inputs.mean(0)
    return tuple(Classified(part.inputs - mean, part.classes) for part in (train, test))


def _one_hot(classes: Tensor) -> Tensor:
    return nn.functional.one_hot(classes).bool()


def _ranking_scores(outputs: Tensor, classes: Tensor, *, softmax: bool) -> Scores:
    """Macro AUC and AP; a softmax model ranks by the odds of a class against the rest."""
    if softmax:
        outputs = objectives.one_vs_rest(outputs)
    tasks = 1 if int(classes.max()) == 1 else outputs.shape[1]
    hot = classes.bool() if tasks == 1 else _one_hot(classes)
    outputs = outputs[:, -1] if tasks == 1 else outputs
    return {
        "AUC": metrics.macro_auroc(outputs, hot),
        "AP": metrics.macro_average_precision(outputs, hot),
    }


def _classification(
    data: tuple[Classified, ...],
    watched: str,
    contender: str,
    seed: int,
    lr: float,
    *,
    hidden: tuple[int, ...],
) -> Outcome | None:
    """One run of a classifier; ``watched`` is the metric for early stopping."""
    train, test = data
    rows, kept = held_out(len(train), seed)
    x, y = train.inputs[rows], train.classes[rows]
    valid = train.inputs[kept], train.classes[kept]
    num_classes, width = train.num_classes, train.inputs.shape[1]
    tasks = num_classes if num_classes > 2 else 1

    def validate(model: nn.Module) -> float:
        return _ranking_scores(model(valid[0]), valid[1], softmax=contender in LOSSES)[watched]

    if contender == "logistic regression (scikit-learn)":
        return Outcome(_logistic(x, y, test), 0.0, 0.0)
    model = make_mlp(width, *hidden, num_classes if contender in LOSSES else tasks)(seed)
    task_data = partial(TaskData.from_classes if tasks > 1 else TaskData.binary, x, y)
    blocks = min(tasks, 5)
    made: tuple[Callable[[], None], Any] | None
    if contender in LOSSES:
        loss, even = LOSSES[contender]
        frequencies = torch.bincount(y, minlength=num_classes) / len(y)
        draw = draws(x, y, size=BATCH, seed=seed, even_by=y if even else None)

        def value() -> Tensor:
            inputs, classes = draw()
            return loss(model(inputs), classes, frequencies)

        made = ordinary(model, value, steps=STEPS, lr=lr)
    elif contender == "fcco average precision":
        made = compositional(
            model,
            objectives.AveragePrecision(int(y.sum()), len(y)),
            AnchorData.average_precision(x, y),
            steps=STEPS,
            blocks=BATCH // 4,
            samples=BATCH - BATCH // 4,
            seed=seed,
        )
    elif contender.startswith("fcco AUC"):
        objective = objectives.MultiTaskAUC(tasks)
        with_loss = contender.endswith("cross-entropy")
        share = BATCH // 2 if with_loss else BATCH  # the same budget: half of it for each loss
        draw = draws(x, y, size=BATCH - share, seed=seed + 1000)

        def mixed(batch: Any) -> Tensor:
            inputs, classes = draw()
            return 0.1 * cross_entropy(model(inputs), classes)

        made = compositional(
            model,
            objective,
            task_data(),
            steps=STEPS,
            blocks=blocks,
            samples=share // blocks,
            seed=seed,
            loss=mixed if with_loss else None,
        )
    else:
        labels = _one_hot(y) if tasks > 1 else y.bool().unsqueeze(1)
        draw = draws(x, labels, size=BATCH, seed=seed, even_by=y if tasks == 1 else None)
        made = libauc_step(model, draw, num_labels=tasks, lr=30 * lr, steps=STEPS)
        if made is None:
            return None
    chosen = fit(model, *made, STEPS, validate)
    with torch.no_grad():
        outputs = model(test.inputs)
    return Outcome(_ranking_scores(outputs, test.classes, softmax=contender in LOSSES), *chosen)


def _logistic(x: Tensor, y: Tensor, test: Classified) -> Scores:
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(max_iter=300).fit(x.numpy(), y.numpy())
    outputs = torch.as_tensor(fitted.decision_function(test.inputs.numpy()))
    outputs = outputs.view(len(test), -1)
    return _ranking_scores(outputs, test.classes, softmax=outputs.shape[1] > 1)


_PLAIN = (*LOSSES, "LibAUC min-max", "logistic regression (scikit-learn)")

Problem = tuple[Callable[[str, int, float], Outcome | None], tuple[str, ...]]

PROBLEMS: dict[str, Problem] = {
    "AUC, usps, 10 tasks": (
        lambda contender, seed, lr: _classification(
            _images("usps"), "AUC", contender, seed, lr, hidden=(128,)
        ),
        ("fcco AUC", "fcco AUC + cross-entropy", *_PLAIN),
    ),
    "AUC, fashion-mnist shirt, 2 % positive": (
        lambda contender, seed, lr: _classification(
            _images("fashion_mnist", 6, 0.18), "AUC", contender, seed, lr, hidden=(64,)
        ),
        ("fcco AUC", *_PLAIN),
    ),
    "AP, a9a, 3 % positive": (
        lambda contender, seed, lr: _classification(
            _a9a(0.1), "AP", contender, seed, lr, hidden=()
        ),
        ("fcco average precision", "fcco AUC", *_PLAIN),
    ),
    **STRUCTURED,
    **EMBEDDINGS,
}
"""By name: how a contender is run with a seed and a step size, and the contenders."""

RATES = (0.001, 0.003, 0.01)
"""Step sizes of the alternatives; the best one by validation counts. fcco has one step size."""


def rival_cases() -> Iterator[Case]:
    """Every contender of every problem."""
    for problem, (_, contenders) in PROBLEMS.items():
        for contender in contenders:
            yield Case(
                "rivals", f"{problem}: {contender}", {"problem": problem, "contender": contender}
            )


def run_rivals(*, problem: str, contender: str, seeds: int = SEEDS) -> dict[str, Any]:
    """The scores of every seed; empty if the contender is not installed."""
    run = PROBLEMS[problem][0]
    fixed = contender.startswith("fcco") or contender in ("lifelines", _PLAIN[-1])
    best = []
    for seed in range(seeds):
        tried = [run(contender, seed, lr) for lr in (RATES[-1:] if fixed else RATES)]
        best.append(max((o for o in tried if o is not None), key=_validation, default=None))
    outcomes = [outcome for outcome in best if outcome is not None]
    names = outcomes[0].scores if outcomes else ()
    return {
        "scores": {name: [outcome.scores[name] for outcome in outcomes] for name in names},
        "seconds": [outcome.seconds for outcome in outcomes],
    }


def _validation(outcome: Outcome) -> float:
    return outcome.validation
