"""The objectives of runs by name: what each makes of the training part of a data set."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from fcco.objectives import (
    AUC,
    NDCG,
    AveragePrecision,
    Cox,
    ListNet,
    MultiTaskAUC,
    MultiTaskGap,
)
from fcco.problem import Objective, SampledObjective
from fcco_lab.datasets.records import Classified, Data, Kind, Ranked, Survival
from fcco_lab.named_objects import is_named, load_named
from fcco_lab.training.config import Config

OF_EXPONENTIAL = ("temperature", "cross_entropy")
"""The settings of auc-exp."""

__all__ = ["OBJECTIVES", "build_objective", "kind_of", "measure_of", "task_labels"]


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


def task_labels(classes: Tensor, count: int) -> Tensor:
    """One column per class, against the rest; two classes are one task.

    Examples:
        >>> import torch
        >>> task_labels(torch.tensor([0, 1, 1]), 2).flatten()
        tensor([False,  True,  True])
    """
    labels = nn.functional.one_hot(classes, count).bool()
    return labels[:, 1:] if count == 2 else labels


def _labels_of(train: Classified) -> Tensor:
    """(N, T) booleans, one column per task."""
    return task_labels(train.classes, train.num_classes)


def kind_of(objective: str) -> Kind | None:
    """The kind of data that an objective needs; None for a user's own, which may be any.

    Examples:
        >>> kind_of("cox")
        'survival'
    """
    return None if is_named(objective) else OBJECTIVES[objective][0]


def build_objective(config: Config, train: Data) -> tuple[Any, SampledObjective]:
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


def measure_of(test: Data, count: int) -> Callable[[Tensor], dict[str, float]]:
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
    labels = task_labels(test.classes, count)
    area, precision = MultiTaskAUC(labels), AveragePrecision(labels)
    return lambda scores: {"auc": area.metric(scores), "ap": precision.metric(scores)}
