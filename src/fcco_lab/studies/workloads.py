"""Problems on real data: a training set with blocks, an objective, a network, a test metric.

Data sets are read from the directory that ``FCCO_DATA`` names.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fcco import metrics, objectives
from fcco.data import AnchorData, BlockData, Classified, GroupData, ListData, ViewData
from fcco.problem.objective import Objective
from fcco_lab.datasets import load_classes, load_ranking, load_survival

__all__ = [
    "WORKLOADS",
    "Workload",
    "a9a_groups",
    "flat_digits",
    "make_mlp",
    "scaled_pair",
    "standardized",
]


@dataclass(frozen=True)
class Workload:
    """A problem.

    Args:
        train: the data of the objective.
        objective: the objective.
        make_model: from a seed to a network.
        metric: the metric of a model on the test data; higher is better.
        metric_name: the name of the metric.
        blocks: the number of blocks per step.
    """

    train: BlockData[Any]
    objective: Objective
    make_model: Callable[[int], nn.Module]
    metric: Callable[[nn.Module], float]
    metric_name: str
    blocks: int = 32
    risk: Callable[[float], float] = float
    """The conversion of F to the shown value, for a risk."""


def make_mlp(*widths: int) -> Callable[[int], nn.Module]:
    """A network with ReLU between layers of ``widths``; two widths make a linear model.

    Examples:
        >>> make_mlp(4, 1)(0)
        Linear(in_features=4, out_features=1, bias=True)
    """

    def make(seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            layers: list[nn.Module] = []
            for wide, narrow in pairwise(widths):
                layers += [nn.Linear(wide, narrow), nn.ReLU()]
        return layers[0] if len(layers) == 2 else nn.Sequential(*layers[:-1])

    return make


def standardized(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """Both by the training set's mean and deviation.

    Examples:
        >>> standardized(torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0]]))[1]
        tensor([[0.]])
    """
    mean, deviation = train.mean(0), train.std(0, correction=0)
    deviation = deviation.where(deviation > 0, 1)
    return (train - mean) / deviation, (test - mean) / deviation


def _survival() -> Workload:
    train, test = load_survival("gbsg")
    x, x_test = standardized(train.inputs, test.inputs)
    data = AnchorData.survival(x, train.times, train.events)
    return Workload(
        data,
        objectives.Cox(data.num_blocks, len(data)),
        make_mlp(x.shape[1], 1),
        lambda model: metrics.concordance_index(model(x_test)[:, 0], test.times, test.events),
        "C-index",
    )


def flat_digits() -> tuple[Classified, Classified]:
    """scikit-learn's digits as rows of 64 pixels."""
    train, test = load_classes("digits")
    return (
        Classified(train.inputs.flatten(1), train.classes),
        Classified(test.inputs.flatten(1), test.classes),
    )


def _neighbour_accuracy(
    train: Classified, test: Classified, metric: Literal["cosine", "euclidean"]
) -> Callable[[nn.Module], float]:
    return lambda model: metrics.knn_accuracy(
        model(train.inputs), train.classes, model(test.inputs), test.classes, metric=metric
    )


def _contrastive() -> Workload:
    train, test = flat_digits()
    generator = torch.Generator().manual_seed(0)
    size = (2, *train.inputs.shape)
    # Views that differ in missing pixels and in noise.
    kept = torch.rand(size, generator=generator) < 0.7
    noise = 0.1 * torch.randn(size, generator=generator)
    first, second = train.inputs * kept + noise
    return Workload(
        ViewData(first, second, two_way=True),
        objectives.GlobalContrastive(len(train), temperature=0.1, two_way=True),
        make_mlp(64, 128, 32),
        _neighbour_accuracy(train, test, "cosine"),
        "kNN accuracy",
    )


def _neighbours() -> Workload:
    train, test = flat_digits()
    return Workload(
        AnchorData.neighbours(train.inputs, train.classes),
        objectives.NCA(len(train), logarithm=True),
        make_mlp(64, 128, 16),
        _neighbour_accuracy(train, test, "euclidean"),
        "kNN accuracy",
    )


def scaled_pair(count: int) -> tuple[Classified, Classified]:
    """a9a: ``count`` training samples and all test samples, 0/1 features centred."""
    train, test = load_classes("a9a")
    some = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:count]
    mean = train.inputs.mean(0)
    return (
        Classified(train.inputs[some] - mean, train.classes[some]),
        Classified(test.inputs - mean, test.classes),
    )


def _partial_auc(*, two_way: bool) -> Workload:
    train, test = scaled_pair(4000)
    data = AnchorData.positives(train.inputs, train.classes)
    sizes = data.num_blocks, data.num_partners
    objective = (
        objectives.TwoWayPartialAUC(*sizes, 0.5, 0.2)
        if two_way
        else objectives.OneWayPartialAUC(*sizes, 0.2)
    )
    least = 0.5 if two_way else 0.0
    return Workload(
        data,
        objective,
        make_mlp(123, 1),
        lambda model: metrics.partial_auroc(
            model(test.inputs)[:, 0], test.classes.bool(), max_fpr=0.3, min_tpr=least
        ),
        "partial AUC, FPR < 0.3" + (", TPR > 0.5" if two_way else ""),
        risk=(lambda value: 0.5 * math.log(value)) if two_way else float,
    )


def _push() -> Workload:
    train, test = scaled_pair(4000)
    data = AnchorData.negatives(train.inputs, train.classes)
    return Workload(
        data,
        objectives.PNormPush(data.num_blocks, power=4.0),
        make_mlp(123, 1),
        lambda model: metrics.partial_auroc(
            model(test.inputs)[:, 0], test.classes.bool(), max_fpr=0.1
        ),
        "partial AUC, FPR < 0.1",
    )


def _ranking() -> Workload:
    train, test = load_ranking("lgb_lambdarank")
    x, x_test = standardized(train.inputs, test.inputs)
    return Workload(
        ListData(x, train.grades, train.lengths),
        objectives.NDCG(train.grades, train.lengths),
        make_mlp(x.shape[1], 32, 1),
        lambda model: metrics.ndcg(model(x_test)[:, 0], test.grades, test.lengths, k=10),
        "NDCG@10",
        blocks=16,  # each has its own partners
    )


def a9a_groups(inputs: Tensor) -> Tensor:
    """a9a's ten groups: five of race, each by sex (columns 67-71 and 72-73 of the original)."""
    return inputs[:, 66:71].argmax(1) * 2 + inputs[:, 71:73].argmax(1)


def _groups() -> Workload:
    train, test = load_classes("a9a")
    mean = train.inputs.mean(0)
    test_groups = a9a_groups(test.inputs)
    objective = objectives.GroupDRO(10, temperature=0.05)
    return Workload(
        GroupData(train.inputs - mean, a9a_groups(train.inputs), train.classes),
        objective,
        make_mlp(123, 2),
        lambda model: metrics.worst_group_accuracy(
            model(test.inputs - mean).argmax(1), test.classes, test_groups
        )[0],
        "worst-group accuracy",
        blocks=5,
        risk=objective.risk,
    )


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "cox": _survival,
    "contrastive": _contrastive,
    "nca": _neighbours,
    "one-way pauc": lambda: _partial_auc(two_way=False),
    "two-way pauc": lambda: _partial_auc(two_way=True),
    "ndcg": _ranking,
    "group dro": _groups,
    "p-norm push": _push,
}
"""Problems without an unbiased mini-batch gradient, by name; each reads its data."""
