"""Small networks: targets refer to the best value that any solver found."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from fcco.objectives import AveragePrecision, GroupDRO, ListNet, MultiTaskAUC, PartialAUC
from fcco.problem.sampled import SampledObjective
from fcco_lab.benchmark.problem import Problem
from fcco_lab.benchmark.problems.models import perceptron
from fcco_lab.benchmark.problems.survival import cox
from fcco_lab.datasets import load_classes

__all__ = [
    "ap_network",
    "auc_network",
    "cox_network",
    "group_dro_network",
    "movies",
    "partial_auc_network",
]


def _network(
    x: Tensor, objective: Callable[[], SampledObjective], outputs: int = 1, **more: Any
) -> Problem:
    """Two hidden layers with a small penalty."""
    return Problem(x, objective, perceptron(x.shape[1], outputs), penalty=1e-4, **more)


def cox_network(data_dir: Path | None) -> Problem:
    """Cox on METABRIC."""
    flat = cox("metabric", data_dir)
    return _network(flat.inputs, flat.objective, sampling="samples", labels=flat.labels)


def auc_network(data_dir: Path | None) -> Problem:
    """The paper's multi-task AUC on USPS: ten digits, each against the rest."""
    train, _ = load_classes("usps", data_dir)
    x, y = train.inputs[:3000].flatten(1).double(), train.classes[:3000]
    return Problem(x, lambda: MultiTaskAUC(y), perceptron(x.shape[1], 10))


def _fashion(data_dir: Path | None) -> tuple[Tensor, Tensor]:
    """3000 images of 14 by 14, and their classes."""
    train, _ = load_classes("fashion_mnist", data_dir)
    x = avg_pool2d(train.inputs[:3000].double(), 2).flatten(1)
    return x - x.mean(0), train.classes[:3000]


def partial_auc_network(data_dir: Path | None) -> Problem:
    """One-way partial AUC: shirts against the rest."""
    x, classes = _fashion(data_dir)
    y = (classes == 6).long()
    objective = partial(PartialAUC, y, temperature=1.0)
    return _network(x, objective, sampling="samples", labels=(y,))


def ap_network(data_dir: Path | None) -> Problem:
    """Average precision: shirts against the rest."""
    x, classes = _fashion(data_dir)
    y = (classes == 6).long()
    return _network(x, lambda: AveragePrecision(y), sampling="samples", labels=(y,))


def group_dro_network(data_dir: Path | None) -> Problem:
    """The soft worst class."""
    x, classes = _fashion(data_dir)
    return _network(x, lambda: GroupDRO(classes, classes, temperature=2.0), outputs=10)


class _Factors(nn.Module):
    """The score of a film for a user: a product of embeddings, and a bias of the film."""

    def __init__(self, users: int, films: int, width: int = 8) -> None:
        super().__init__()
        self.users, self.films = nn.Embedding(users, width), nn.Embedding(films, width + 1)
        nn.init.normal_(self.users.weight, std=0.3)
        nn.init.normal_(self.films.weight, std=0.3)

    def forward(self, pairs: Tensor) -> Tensor:
        """(B, 2), user and film, to (B, 1)."""
        users, films = self.users(pairs[:, 0]), self.films(pairs[:, 1])
        scores: Tensor = (users * films[:, :-1]).sum(1, keepdim=True) + films[:, -1:]
        return scores


def movies(data_dir: Path | None) -> Problem:
    """ListNet on MovieLens-100k: 943 lists, and 100,000 blocks."""
    if data_dir is None:
        raise ValueError("give --data-dir, with ml100k.npz")
    file = np.load(data_dir / "ml100k.npz")
    user, film, rating = (torch.from_numpy(file[key]).long() for key in ("user", "item", "rating"))
    order = user.argsort(stable=True)
    pairs = torch.stack([user, film], dim=1)[order]
    labels = rating[order] - 1, torch.bincount(user)
    return Problem(
        pairs,
        lambda: ListNet(*labels),
        lambda: _Factors(int(user.max()) + 1, int(film.max()) + 1),
        penalty=1e-5,
        labels=labels,
    )
