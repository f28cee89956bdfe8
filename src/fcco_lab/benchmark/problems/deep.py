"""Small networks: targets refer to the best value that any solver found."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, cross_entropy

from fcco.objectives import AveragePrecision, GroupDRO, ListNet, MultiTaskAUC, PartialAUC
from fcco_lab.benchmark.problem import Problem
from fcco_lab.benchmark.problems.models import perceptron
from fcco_lab.benchmark.problems.survival import cox
from fcco_lab.datasets import load_classes

__all__ = ["ap_fashion", "auc_usps", "cox_network", "group_dro_fashion", "movies", "pauc_fashion"]


def cox_network(data_dir: Path | None) -> Problem:
    """Cox on METABRIC."""
    flat = cox("metabric", data_dir)
    return Problem(
        flat.inputs,
        flat.objective,
        perceptron(flat.inputs.shape[1]),
        penalty=1e-4,
        sampling="samples",
        labels=flat.labels,
    )


def auc_usps(data_dir: Path | None) -> Problem:
    """The paper's multi-task AUC: ten digits, each against the rest."""
    train, _ = load_classes("usps", data_dir)
    x, y = train.inputs[:3000].flatten(1).double(), train.classes[:3000]
    return Problem(x, lambda: MultiTaskAUC(y), perceptron(x.shape[1], 10))


def _fashion(data_dir: Path | None, count: int) -> tuple[Tensor, Tensor]:
    """Images of 14 by 14 and their classes."""
    train, _ = load_classes("fashion_mnist", data_dir)
    x = avg_pool2d(train.inputs[:count].double(), 2).flatten(1)
    return x - x.mean(0), train.classes[:count]


def pauc_fashion(data_dir: Path | None) -> Problem:
    """One-way partial AUC: shirts against the rest."""
    x, classes = _fashion(data_dir, 3000)
    y = (classes == 6).long()
    return Problem(
        x,
        lambda: PartialAUC(y, temperature=1.0),
        perceptron(x.shape[1]),
        penalty=1e-4,
        sampling="samples",
        labels=(y,),
    )


def ap_fashion(data_dir: Path | None) -> Problem:
    """Average precision: shirts against the rest."""
    x, classes = _fashion(data_dir, 3000)
    y = (classes == 6).long()
    return Problem(
        x,
        lambda: AveragePrecision(y),
        perceptron(x.shape[1]),
        penalty=1e-4,
        sampling="samples",
        labels=(y,),
    )


def _each_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, targets, reduction="none")


def group_dro_fashion(data_dir: Path | None) -> Problem:
    """The soft worst class."""
    x, classes = _fashion(data_dir, 3000)
    return Problem(
        x,
        lambda: GroupDRO(classes, classes, temperature=2.0, loss=_each_cross_entropy),
        perceptron(x.shape[1], 10),
        penalty=1e-4,
    )


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
        return (users * films[:, :-1]).sum(1, keepdim=True) + films[:, -1:]


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
