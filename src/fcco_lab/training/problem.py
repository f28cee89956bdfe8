"""What a run is about: data, objective and network, from a config."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fcco.data import AnchorData, BlockData, Classified, TaskData
from fcco.objectives import (
    AveragePrecision,
    ExponentialAUC,
    MultiTaskAUC,
    MultiTaskGap,
    one_vs_rest,
)
from fcco.problem.objective import Objective
from fcco_lab.datasets import load_classes
from fcco_lab.networks import build_network
from fcco_lab.training.config import Config
from fcco_lab.training.identity import fingerprint

__all__ = ["Problem", "load_problem", "proportional"]


@dataclass(frozen=True, eq=False)
class Problem:
    """A training set in blocks, its objective, and a test set with one label per task.

    Two classes are one task; more are one task each, against the rest.
    """

    train: BlockData[Any]
    classes: Tensor
    objective: Objective
    test_inputs: Tensor
    test_labels: Tensor
    shape: tuple[int, ...]
    content: dict[str, str] = field(default_factory=dict)
    """What the data is, wherever it was read from: ``identity.fingerprint`` of each part."""

    @property
    def num_tasks(self) -> int:
        """Outputs of the network."""
        return self.test_labels.shape[1]

    def scores(self, outputs: Tensor) -> Tensor:
        """From outputs of the network to the scores of the objective and of the test."""
        softmax = isinstance(self.objective, ExponentialAUC) and self.num_tasks > 1
        return one_vs_rest(outputs) if softmax else outputs

    def network(self, config: Config) -> nn.Module:
        """The config's network for this data, on its device."""
        network = build_network(config.network, self.shape, self.num_tasks, seed=config.seed)
        return network.to(config.device)


def load_problem(config: Config, data_dir: Path | None = None) -> Problem:
    """Read, cut and standardise the data, and put the objective on it."""
    train, test = load_classes(config.data, data_dir)
    if config.holdout:
        rows = proportional(train.classes, round(len(train) * (1 - config.holdout)), seed=1)
        rest = torch.ones(len(train), dtype=torch.bool).index_fill(0, rows, False)
        train, test = _part(train, rows), _part(train, rest.nonzero().flatten())
    if config.train_size and config.train_size < len(train):
        train = _part(train, proportional(train.classes, config.train_size, seed=0))
    count = max(train.num_classes, test.num_classes)
    _check_classes(config, count, training=train, test=test)
    labels, test_labels = (_labels(part.classes, count) for part in (train, test))
    # As it was read: standardising may round differently on another machine.
    content = {
        "training_data": fingerprint(train.inputs, train.classes),
        "test_data": fingerprint(test.inputs, test.classes),
    }
    inputs, test_inputs = _standardized(train.inputs, test.inputs)
    device = torch.device(config.device)
    inputs, test_inputs = inputs.to(device), test_inputs.to(device)
    data: BlockData[Any]
    objective: Objective
    if config.objective == "ap":
        data = AnchorData.average_precision(inputs, labels)
        objective = AveragePrecision(labels.sum(0).tolist(), len(inputs))
    else:
        data = TaskData(inputs, labels)
        if config.objective == "auc-exp":
            objective = ExponentialAUC(labels.shape[1], len(inputs), cross_entropy=1.0)
        else:
            objective = (MultiTaskAUC if config.objective == "auc" else MultiTaskGap)(
                labels.shape[1]
            )
    return Problem(
        data, train.classes, objective, test_inputs, test_labels, tuple(inputs.shape[1:]), content
    )


def proportional(classes: Tensor, count: int, *, seed: int) -> Tensor:
    """Positions of ``count`` samples, the same share of every class, in their old order.

    Examples:
        >>> rows = proportional(torch.tensor([0] * 8 + [1] * 4), 6, seed=0)
        >>> int((rows < 8).sum()), len(rows)
        (4, 6)
    """
    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed))
    sizes = torch.bincount(classes)
    by_class = order[classes[order].sort(stable=True).indices]
    starts = sizes.cumsum(0) - sizes
    rank = torch.arange(len(classes)) - starts.repeat_interleave(sizes)
    share = (rank + 0.5) / sizes.repeat_interleave(sizes)
    return by_class[share.sort(stable=True).indices[:count]].sort().values


def _check_classes(config: Config, count: int, **parts: Classified) -> None:
    """There are two classes at least, and samples of each in both parts."""
    if count < 2:
        raise ValueError(f"{config.data} has {count} classes: there is nothing to compare")
    for name, part in parts.items():
        sizes = torch.bincount(part.classes, minlength=count)
        if not sizes.all():
            lacking = (sizes == 0).nonzero().flatten().tolist()
            cut = config.holdout or config.train_size
            why = ": holdout and train_size leave too few" if cut else ""
            raise ValueError(f"{config.data}: classes {lacking} have no {name} sample{why}")


def _part(data: Classified, rows: Tensor) -> Classified:
    return Classified(data.inputs[rows], data.classes[rows])


def _labels(classes: Tensor, count: int) -> Tensor:
    labels = nn.functional.one_hot(classes, count).bool()
    return labels[:, 1:] if count == 2 else labels


def _standardized(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """Standardise by the training set's mean and deviation, per channel or per feature."""
    places = [0, *range(2, train.ndim)]
    mean, deviation = train.mean(places, keepdim=True), train.std(places, keepdim=True)
    deviation = deviation.where(deviation > 0, 1)
    # convolutions on the CPU take two thirds of the time in this order
    form = torch.channels_last if train.ndim == 4 else torch.contiguous_format
    train, test = (
        ((part - mean) / deviation).contiguous(memory_format=form) for part in (train, test)
    )
    return train, test
