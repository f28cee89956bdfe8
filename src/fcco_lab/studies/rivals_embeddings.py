"""Embeddings of digits: fcco's objectives and the usual alternatives, by nearest neighbours."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from fcco import metrics, objectives
from fcco.data import AnchorData, ViewData
from fcco.optim import by_name
from fcco.updates import Adam
from fcco_lab.studies.baselines import draws
from fcco_lab.studies.fitting import Outcome, compositional, fit, held_out, ordinary
from fcco_lab.studies.workloads import flat_digits, make_mlp

__all__ = ["EMBEDDINGS"]

STEPS = 1500


def _embedding_fit(
    model: nn.Module, made: tuple[Callable[[], None], Any], metric: Any, seed: int
) -> Outcome:
    train, test = flat_digits()
    rows, kept = held_out(len(train), seed)

    def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
        known = model(train.inputs[rows]), train.classes[rows]
        return metrics.knn_accuracy(*known, model(x), y, metric=metric)

    chosen = fit(
        model, *made, STEPS, lambda model: accuracy(model, train.inputs[kept], train.classes[kept])
    )
    with torch.no_grad():
        embeddings = model(test.inputs)
        found = {
            "kNN accuracy": accuracy(model, test.inputs, test.classes),
            "recall@1": metrics.recall_at_k(embeddings, test.classes, 1, metric=metric),
        }
    return Outcome(found, *chosen)


def _contrastive(contender: str, seed: int, lr: float) -> Outcome:
    train, _ = flat_digits()
    rows, _ = held_out(len(train), seed)
    generator = torch.Generator().manual_seed(seed)
    size = (2, len(rows), 64)
    keep = torch.rand(size, generator=generator) < 0.7
    noise = 0.1 * torch.randn(size, generator=generator)
    first, second = train.inputs[rows] * keep + noise
    model = make_mlp(64, 128, 32)(seed)
    batch = 64
    if contender == "InfoNCE in the batch":
        draw = draws(first, second, size=batch, seed=seed, distinct=True)

        def value() -> Tensor:
            x, y = (normalize(model(view), dim=1) for view in draw())
            cosines = x @ y.T / 0.1
            own = torch.arange(batch)
            return (cross_entropy(cosines, own) + cross_entropy(cosines.T, own)) / 2

        made = ordinary(model, value, steps=STEPS, lr=lr)
    else:
        made = compositional(
            model,
            objectives.GlobalContrastive(len(rows), 0.1, two_way=True),
            ViewData(first, second, two_way=True),
            steps=STEPS,
            blocks=batch // 2,
            samples=batch // 2,
            seed=seed,
        )
    return _embedding_fit(model, made, "cosine", seed)


def _neighbours(contender: str, seed: int, lr: float) -> Outcome:
    train, _ = flat_digits()
    rows, _ = held_out(len(train), seed)
    x, y = train.inputs[rows], train.classes[rows]
    model = make_mlp(64, 128, 16)(seed)
    if contender == "cross-entropy embedding":
        head = make_mlp(16, 10)(seed)
        draw = draws(x, y, size=128, seed=seed)

        def value() -> Tensor:
            inputs, classes = draw()
            return cross_entropy(head(model(inputs)), classes)

        made = ordinary(nn.ModuleList([model, head]), value, steps=STEPS, lr=lr)
    else:
        objective = objectives.NCA(len(rows), logarithm=True)
        opt = None
        if contender == "NCA in the batch":
            opt = by_name("bsgd", model, objective, lr=lr, alpha=0.5, update=Adam())
        made = compositional(
            model,
            objective,
            AnchorData.neighbours(x, y),
            steps=STEPS,
            blocks=64,
            samples=64,
            seed=seed,
            opt=opt,
        )
    return _embedding_fit(model, made, "euclidean", seed)


EMBEDDINGS: dict[str, tuple[Callable[[str, int, float], Outcome], tuple[str, ...]]] = {
    "contrastive, digits": (_contrastive, ("fcco global contrastive", "InfoNCE in the batch")),
    "NCA, digits": (_neighbours, ("fcco NCA", "NCA in the batch", "cross-entropy embedding")),
}
"""Problems by name: how a contender is run with a seed and a step size, and the contenders."""
