"""Survival, ranking and groups: fcco's objectives and the usual alternatives."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from fcco import metrics, objectives
from fcco.data import AnchorData, GroupData, ListData, exact_value
from fcco.optim import by_name
from fcco.problems.newton import newton
from fcco.updates import Adam
from fcco_lab.datasets import load_classes, load_ranking, load_survival
from fcco_lab.studies.baselines import draws
from fcco_lab.studies.fitting import (
    Outcome,
    compositional,
    fit,
    held_out,
    ordinary,
    recommended,
)
from fcco_lab.studies.workloads import a9a_groups, make_mlp, standardized

__all__ = ["STRUCTURED"]

STEPS = 1500


def _survival(contender: str, seed: int, lr: float) -> Outcome:
    """Linear Cox on all of the training set, no early stopping: the distance to the optimum."""
    train, test = load_survival("gbsg")
    x, x_test = standardized(train.inputs.double(), test.inputs.double())
    data, objective = _linear_cox()
    model = make_mlp(x.shape[1], 1)(seed).double()
    chosen = 0.0, 0.0
    if contender == "lifelines":
        coefficients = _lifelines(x, train.times, train.events)
        model.load_state_dict({"weight": coefficients[None], "bias": torch.zeros(1)})
    else:
        samples = 256
        opt = recommended(model.parameters(), objective)
        if contender == "mini-batch partial likelihood":
            opt = by_name("bsgd", model, objective, lr=lr, alpha=0.5, update=Adam())
        made = compositional(
            model, objective, data, steps=STEPS, blocks=64, samples=samples, seed=seed, opt=opt
        )
        _, seconds = fit(model, *made, STEPS, None)
        with torch.no_grad():
            chosen = -exact_value(model, data, objective), seconds
    with torch.no_grad():
        value = exact_value(model, data, objective)
        risk = model(x_test)[:, 0]
        index = metrics.concordance_index(risk, test.times, test.events)
    return Outcome({"gap": value - _least(), "C-index": index}, *chosen)


def _linear_cox() -> tuple[AnchorData, objectives.Cox]:
    train, test = load_survival("gbsg")
    x, _ = standardized(train.inputs.double(), test.inputs.double())
    data = AnchorData.survival(x, train.times, train.events, ties="efron")
    return data, objectives.Cox(data.num_blocks, len(x), data.max_ties)


@cache
def _least() -> float:
    """The lowest value of the linear model, by Newton's method."""
    data, objective = _linear_cox()
    chunks = [data.collate(chunk) for chunk in data.chunks(len(data))]

    def value(w: Tensor) -> Tensor:
        probes = [objective.inner(lambda inputs: inputs @ w, chunk) for chunk in chunks]
        rows = [
            objective.scaled_outer(p.values, p.log_scale, p.blocks)
            for p in probes
            if p.log_scale is not None
        ]
        return torch.cat(rows).mean()

    return float(value(newton(value, torch.zeros(data.inputs.shape[1], dtype=torch.float64))))


def _lifelines(x: Tensor, times: Tensor, events: Tensor) -> Tensor:
    import pandas
    from lifelines import CoxPHFitter

    frame = pandas.DataFrame(x.numpy())
    frame["time"], frame["event"] = times.numpy(), events.numpy()
    fitted = CoxPHFitter().fit(frame, "time", "event")
    return torch.as_tensor(fitted.params_.to_numpy())


def _ranking(contender: str, seed: int, lr: float) -> Outcome:
    train, test = load_ranking("lgb_lambdarank")
    x, x_test = standardized(train.inputs, test.inputs)
    # Whole lists are held out.
    lists = torch.arange(len(train.lengths)).repeat_interleave(train.lengths)
    rows, kept = held_out(len(train.lengths), seed)
    own, other = torch.isin(lists, rows), torch.isin(lists, kept)
    lengths = train.lengths[rows.sort().values]
    items, grades = x[own], train.grades[own]
    model = make_mlp(x.shape[1], 32, 1)(seed)
    if contender == "regression on grades":
        draw = draws(items, grades.float(), size=256, seed=seed)

        def squared() -> Tensor:
            inputs, targets = draw()
            return mse_loss(model(inputs)[:, 0], targets)

        made = ordinary(model, squared, steps=STEPS, lr=lr)
    else:
        relevant = contender == "fcco NDCG"
        make = objectives.NDCG if relevant else objectives.ListNet
        data = ListData(items, grades, lengths, relevant=relevant)
        made = compositional(
            model, make(grades, lengths), data, steps=STEPS, blocks=16, samples=15, seed=seed
        )
    valid = x[other], train.grades[other], train.lengths[kept.sort().values]
    chosen = fit(
        model, *made, STEPS, lambda model: metrics.ndcg(model(valid[0])[:, 0], *valid[1:], k=10)
    )
    with torch.no_grad():
        scores = model(x_test)[:, 0]
    found = {f"NDCG@{k}": metrics.ndcg(scores, test.grades, test.lengths, k=k) for k in (5, 10)}
    return Outcome(found, *chosen)


def _groups(contender: str, seed: int, lr: float) -> Outcome:
    train, test = load_classes("a9a")
    mean, groups = train.inputs.mean(0), a9a_groups(train.inputs)
    rows, kept = held_out(len(train), seed)
    x, y, g = (train.inputs - mean)[rows], train.classes[rows], groups[rows]
    model = make_mlp(123, 64, 2)(seed)
    data = GroupData(x, g, y)
    extra: list[nn.Parameter] = []
    if contender.startswith("fcco"):
        objective: objectives.GroupDRO | objectives.GroupCVaR
        if contender == "fcco KL":
            objective = objectives.GroupDRO(10, temperature=0.1)
        else:
            objective = objectives.GroupCVaR(10, fraction=0.3)
            extra = [objective.threshold]
        made = compositional(
            model, objective, data, steps=STEPS, blocks=5, samples=51, seed=seed, extra=extra
        )
    else:
        even = g if contender.startswith("group-balanced") else None
        draw = draws(x, y, size=256, seed=seed, even_by=even)

        def value() -> Tensor:
            inputs, classes = draw()
            return cross_entropy(model(inputs), classes)

        made = ordinary(model, value, steps=STEPS, lr=lr)
    valid = train.inputs[kept] - mean, train.classes[kept], groups[kept]

    def worst(model: nn.Module) -> float:
        """The worst group by loss: some groups have too few validation samples for an accuracy."""
        losses = cross_entropy(model(valid[0]), valid[1], reduction="none")
        present = valid[2].unique()
        return -float(max(losses[valid[2] == group].mean() for group in present))

    chosen = fit(model, *made, STEPS, worst)
    with torch.no_grad():
        outputs = model(test.inputs - mean)
    predictions, where = outputs.argmax(1), a9a_groups(test.inputs)
    losses = cross_entropy(outputs, test.classes, reduction="none")
    found = {
        "worst accuracy": metrics.worst_group_accuracy(predictions, test.classes, where)[0],
        "worst loss": float(max(losses[where == group].mean() for group in where.unique())),
        "accuracy": float((predictions == test.classes).double().mean()),
    }
    return Outcome(found, *chosen)


STRUCTURED: dict[str, tuple[Callable[[str, int, float], Outcome], tuple[str, ...]]] = {
    "Cox, gbsg, linear": (_survival, ("fcco Cox", "mini-batch partial likelihood", "lifelines")),
    "NDCG, lgb_lambdarank": (_ranking, ("fcco NDCG", "fcco ListNet", "regression on grades")),
    "groups, a9a": (
        _groups,
        ("fcco KL", "fcco CVaR", "cross-entropy", "group-balanced cross-entropy"),
    ),
}
"""Problems by name: how a contender is run with a seed, and the contenders."""
