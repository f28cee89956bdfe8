"""The objectives of runs by name: what each makes of the training part of a data set."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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
from fcco_lab.datasets.records import Classified, Ranked, Survival
from fcco_lab.named_objects import is_named, load_named
from fcco_lab.training.config import OF_OBJECTIVE, Config

if TYPE_CHECKING:
    from fcco_lab.datasets.catalogue import Kind

__all__ = ["OBJECTIVES", "build_objective", "kind_of", "measure_of", "task_labels"]

Make = Callable[[Any, Config], SampledObjective]


def _exponential(train: Classified, config: Config) -> AUC:
    return AUC(
        _labels_of(train),
        temperature=config.temperature,
        bounded=config.bounded,
        cross_entropy=config.cross_entropy,
    )


OBJECTIVES: dict[str, tuple[Kind, Make]] = {
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

KINDS: dict[type, Kind] = {Classified: "classes", Survival: "survival", Ranked: "ranking"}


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


def build_objective(config: Config, train: Any) -> tuple[Any, SampledObjective]:
    """The inputs of the training part, and the objective built from its labels.

    A user's own objective is a class, which is called with labels (N, T), booleans, or a function
    from the training part (``Classified``, ``Survival`` or ``Ranked``) to an objective, or to
    (inputs, objective) if the inputs change too.

    Args:
        config: names the objective and the data.
        train: the training part.
    """
    objective, data, kind = config.objective, config.data, KINDS[type(train)]
    for name in OF_OBJECTIVE:
        if objective != "auc-exp" and getattr(config, name) != getattr(Config, name):
            raise ValueError(f"{name} is a setting of objective auc-exp, not of {objective}")
    if not is_named(objective):
        needed, make = OBJECTIVES[objective]
        if needed != kind:
            fitting = " or ".join(name for name, (other, _) in OBJECTIVES.items() if other == kind)
            raise ValueError(
                f"objective {objective} needs {_SAID[needed]}, but {data} has {_SAID[kind]}: use "
                f"{fitting}"
            )
        return train.inputs, make(train, config)
    own = load_named("objective", objective)
    if isinstance(own, type) and issubclass(own, Objective):
        if kind != "classes":
            raise ValueError(
                f"objective {objective}: a class is called with the labels of AUC tasks, but "
                f"{data} has {_SAID[kind]}; name a function from the data to an objective"
            )
        make_own: Any = own
        made: Any = make_own(_labels_of(train))
    elif callable(own):
        made = own(train)
    else:
        raise ValueError(
            f"objective {objective} must be a subclass of fcco.Objective, or a function from the "
            f"data to an objective or to (inputs, objective), got {type(own).__name__}"
        )
    pair = made if isinstance(made, tuple) else (train.inputs, made)
    if len(pair) != 2 or not isinstance(pair[1], Objective):
        raise ValueError(
            f"objective {objective} must return an objective or (inputs, objective), got "
            f"{made!r:.80}"
        )
    if not isinstance(pair[1], SampledObjective):
        raise ValueError(
            f"objective {objective}: {type(pair[1]).__name__} does not know the samples of its "
            "blocks; derive it from one of fcco.objectives or from fcco.problem.SampledObjective"
        )
    return pair


_SAID: dict[Kind, str] = {
    "classes": "classes",
    "survival": "survival times",
    "ranking": "grades of queries",
}


def measure_of(test: Any, count: int) -> Callable[[Tensor], dict[str, float]]:
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
