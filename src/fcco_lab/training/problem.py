"""What a run is about: data, objective, network and test, from a config or made by hand."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fcco.objectives import AUC, NDCG, AveragePrecision, Cox, ListNet, MultiTaskAUC, MultiTaskGap
from fcco.problem import Objective, SampledObjective
from fcco_lab.datasets import catalogue, is_own, load_own
from fcco_lab.datasets.records import Classified, Data, Kind, Ranked, Survival
from fcco_lab.datasets.splitting import split
from fcco_lab.entries import entry_of
from fcco_lab.named_objects import is_named, load_named, source_of_named
from fcco_lab.networks import build_network
from fcco_lab.training.config import Config

__all__ = ["OBJECTIVES", "Problem", "fingerprint", "kind_of", "load_problem"]

OF_EXPONENTIAL = ("temperature", "cross_entropy")
"""The settings of auc-exp."""


def _exponential(train: Classified, config: Config) -> AUC:
    settings = {name: getattr(config, name) for name in OF_EXPONENTIAL}
    return AUC(_labels_of(train), **settings)


OBJECTIVES: dict[str, tuple[Kind, Callable[[Any, Config], SampledObjective]]] = {
    "auc": ("classes", lambda train, _: MultiTaskAUC(_labels_of(train))),
    "auc-odds": ("classes", lambda train, _: MultiTaskAUC(_labels_of(train))),
    "auc-exp": ("classes", _exponential),
    "gap": ("classes", lambda train, _: MultiTaskGap(_labels_of(train))),
    "ap": ("classes", lambda train, _: AveragePrecision(_labels_of(train))),
    "cox": ("survival", lambda train, _: Cox(train.times, train.events)),
    "ndcg": ("ranking", lambda train, _: NDCG(train.grades, train.lengths)),
    "listnet": ("ranking", lambda train, _: ListNet(train.grades, train.lengths)),
}
"""The kind of data that each needs, and the function that builds it from the training part."""

_DESCRIBED: dict[Kind, str] = {
    "classes": "classes",
    "survival": "survival times",
    "ranking": "grades of queries",
}


def _task_labels(classes: Tensor, count: int) -> Tensor:
    """One column per class, against the rest; two classes are one task.

    Examples:
        >>> _task_labels(torch.tensor([0, 1, 1]), 2).flatten()
        tensor([False,  True,  True])
    """
    labels = nn.functional.one_hot(classes, count).bool()
    return labels[:, 1:] if count == 2 else labels


def _labels_of(train: Classified) -> Tensor:
    """(N, T) booleans, one column per task."""
    return _task_labels(train.classes, train.num_classes)


def kind_of(objective: str) -> Kind | None:
    """The kind of data that an objective needs; None for a user's own, which may be any.

    Examples:
        >>> kind_of("cox")
        'survival'
    """
    return None if is_named(objective) else OBJECTIVES[objective][0]


def _build_objective(config: Config, train: Data) -> tuple[Any, SampledObjective]:
    """The inputs of the training part, and the objective built from its labels.

    A user's own objective is a class, which is called with labels (N, T), booleans, or a function
    from the training part (``Classified``, ``Survival`` or ``Ranked``) to an objective, or to
    (inputs, objective) if the inputs change too.

    Args:
        config: names the objective and the data.
        train: the training part.
    """
    objective = config.objective
    for name in OF_EXPONENTIAL:
        if objective != "auc-exp" and getattr(config, name) != getattr(Config, name):
            raise ValueError(f"{name} is a setting of objective auc-exp, not of {objective}")
    if is_named(objective):
        return _build_own(objective, train)
    needed, make = OBJECTIVES[objective]
    if needed != train.kind:
        fitting = [name for name, (kind, _) in OBJECTIVES.items() if kind == train.kind]
        raise ValueError(
            f"objective {objective} needs {_DESCRIBED[needed]}, but {config.data} has "
            f"{_DESCRIBED[train.kind]}: use {' or '.join(fitting)}"
        )
    return train.inputs, make(train, config)


def _build_own(name: str, train: Data) -> tuple[Any, SampledObjective]:
    own = load_named("objective", name)
    if not callable(own):
        raise ValueError(
            f"objective {name} must be a subclass of fcco.Objective, or a function from the data "
            f"to an objective or to (inputs, objective), got {type(own).__name__}"
        )
    takes_labels = isinstance(own, type) and issubclass(own, Objective)
    if takes_labels and not isinstance(train, Classified):
        raise ValueError(
            f"objective {name}: a class is called with the labels of AUC tasks, but the data has "
            f"{_DESCRIBED[train.kind]}; name a function from the data to an objective"
        )
    made = own(_labels_of(train) if takes_labels else train)  # type: ignore[arg-type]
    is_pair = isinstance(made, tuple) and len(made) == 2
    inputs, objective = made if is_pair else (train.inputs, made)
    if not isinstance(objective, SampledObjective):
        raise ValueError(
            f"objective {name}: {type(objective).__name__} does not know the samples of its "
            "blocks; derive it from one of fcco.objectives or from fcco.problem.SampledObjective"
        )
    return inputs, objective


def _measure_of(test: Data, count: int) -> Callable[[Tensor], dict[str, float]]:
    """From the scores of the test part to its metrics by name.

    Args:
        test: the test part.
        count: the number of classes, if it has classes.
    """
    if isinstance(test, Survival):
        survival = Cox(test.times, test.events)
        return lambda scores: {"c_index": survival.metric(scores)}
    if isinstance(test, Ranked):
        ranking = NDCG(test.grades, test.lengths, top_k=10)
        return lambda scores: {"ndcg": ranking.metric(scores)}
    labels = _task_labels(test.classes, count)
    area, precision = MultiTaskAUC(labels), AveragePrecision(labels)
    return lambda scores: {"auc": area.metric(scores), "ap": precision.metric(scores)}


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """The inputs of a training set, an objective built from its labels, a network, and a test.

    Args:
        train_inputs: of the samples that the objective was built from, as ``fcco.data`` takes
            them.
        objective: the problem.
        network: from a config to a module; torch's RNG is seeded by the config when it is called.
        test_inputs: N inputs, along the first dimension.
        measure: from the scores of all test inputs to numbers by name: auc, ap, c_index, ndcg
            (higher is better). A report shows these four.
        name: what it is called in records and reports.
        classes: (number of training samples,), for the baselines; None if there are none.
        content: what the data is, wherever it was read from: ``fingerprint`` of each part.

    Examples:
        >>> import fcco
        >>> inputs = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
        >>> objective = fcco.objectives.MultiTaskAUC(inputs[:, 0] > 0)
        >>> problem = Problem(
        ...     train_inputs=inputs,
        ...     objective=objective,
        ...     network=lambda config: nn.Linear(4, 1),
        ...     test_inputs=inputs,
        ...     measure=lambda scores: {"auc": objective.metric(scores)},
        ... )
        >>> problem.objective.num_blocks
        1
    """

    train_inputs: Any
    objective: SampledObjective
    network: Callable[[Config], nn.Module]
    test_inputs: Tensor
    measure: Callable[[Tensor], dict[str, float]]
    name: str = "own data"
    classes: Tensor | None = None
    content: dict[str, str] = field(default_factory=dict)


def load_problem(config: Config, data_dir: Path | None = None) -> Problem:
    """Read, cut and standardise the data, and build the objective from its labels."""
    entry_of(config.method)  # or say at once what is wrong with a user's own
    train, test = _read(config, data_dir)
    if config.holdout:
        train, test = split(train, round(len(train) * (1 - config.holdout)), seed=1)
    if config.train_size and config.train_size < len(train):
        train, _ = split(train, config.train_size, seed=0)
    count = 0
    if isinstance(train, Classified) and isinstance(test, Classified):
        count = max(train.num_classes, test.num_classes)
        _check_classes(config, count, training=train, test=test)
    # As it was read: standardising may round differently on another machine.
    content = {
        "training_data": fingerprint(*vars(train).values()),
        "test_data": fingerprint(*vars(test).values()),
    }
    if is_own(config.data):
        content["data"] = Path(config.data).name  # a copy elsewhere is the same data
    inputs, test_inputs = (
        part.to(config.device) for part in _standardized(train.inputs, test.inputs)
    )
    # Two classes are one task; survival and rankings, without classes, have one score.
    shape, outputs = tuple(inputs.shape[1:]), count if count > 2 else 1
    given, objective = _build_objective(config, replace(train, inputs=inputs))
    for key in ("objective", "method"):
        if is_named(word := getattr(config, key)) and not word.startswith("python:"):
            content[f"{key}_source"] = source_of_named(word)
    return Problem(
        train_inputs=given,
        objective=objective,
        network=lambda of: build_network(of.network, shape, outputs, seed=of.seed),
        test_inputs=test_inputs,
        measure=_measure_of(test, count),
        name=config.data,
        classes=train.classes if isinstance(train, Classified) else None,
        content=content,
    )


def fingerprint(*tensors: Tensor) -> str:
    """The size of a data set and a digest of its content, wherever it was read from.

    Examples:
        >>> fingerprint(torch.zeros(3, 2), torch.tensor([0, 1, 1]))
        '3 samples, sha256 ea7607259a9837e1'
    """
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        for part in tensor.split(1024):
            digest.update(part.contiguous().cpu().numpy())
    return f"{len(tensors[0])} samples, sha256 {digest.hexdigest()[:16]}"


def _read(config: Config, data_dir: Path | None) -> tuple[Data, Data]:
    target, drop = (
        [name.strip() for name in words.split(",") if name.strip()]
        for words in (config.target, config.drop)
    )
    if is_own(config.data):
        return load_own(config.data, kind=kind_of(config.objective), target=target, drop=drop)
    if target or drop:
        raise ValueError(f"target and drop are for tables of your own, not for {config.data}")
    return catalogue.load_named(config.data, data_dir)


def _check_classes(config: Config, count: int, **parts: Classified) -> None:
    """There are two classes at least, and samples of each in both parts."""
    if count < 2:
        raise ValueError(f"{config.data} has {count} classes: there is nothing to compare")
    for name, part in parts.items():
        sizes = torch.bincount(part.classes, minlength=count)
        if not sizes.all():
            lacking = (sizes == 0).nonzero().flatten().tolist()
            why = ""
            if config.holdout or config.train_size:
                why = ": holdout and train_size leave too few"
            raise ValueError(f"{config.data}: classes {lacking} have no {name} sample{why}")


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
