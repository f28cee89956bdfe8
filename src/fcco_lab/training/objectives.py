"""The objectives of runs by name: the blocks that each makes of a data set."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from fcco.data import AnchorData, BlockData, Classified, ListData, Ranked, Survival, TaskData
from fcco.metrics import concordance_index, macro_auroc, macro_average_precision, ndcg
from fcco.objectives import (
    NDCG,
    AveragePrecision,
    Cox,
    ExponentialAUC,
    ListNet,
    MultiTaskAUC,
    MultiTaskGap,
)
from fcco.problem.objective import Objective
from fcco_lab.named_objects import is_named, load_named
from fcco_lab.training.config import OF_OBJECTIVE, Config

if TYPE_CHECKING:
    from fcco_lab.datasets.catalogue import Kind

__all__ = ["OBJECTIVES", "blocks_of", "kind_of", "measure_of", "task_labels"]

Blocks = tuple[BlockData[Any], Objective]


def _tasks(make: Callable[[int], Objective], train: Classified) -> Blocks:
    labels = task_labels(train.classes, train.num_classes)
    return TaskData(train.inputs, labels), make(labels.shape[1])


def _exponential(train: Classified, config: Config) -> Blocks:
    form = partial(
        ExponentialAUC,
        num_samples=len(train),
        temperature=config.temperature,
        bounded=config.bounded,
        cross_entropy=config.cross_entropy,
    )
    return _tasks(form, train)


def _average_precision(train: Classified, _: Config) -> Blocks:
    labels = task_labels(train.classes, train.num_classes)
    data = AnchorData.average_precision(train.inputs, labels)
    return data, AveragePrecision(labels.sum(0).tolist(), len(train))


def _cox(train: Survival, _: Config) -> Blocks:
    data = AnchorData.survival(train.inputs, train.times, train.events)
    return data, Cox(data.num_blocks, len(train), data.max_ties)


def _ndcg(train: Ranked, _: Config) -> Blocks:
    data = ListData(train.inputs, train.grades, train.lengths)
    return data, NDCG(train.grades, train.lengths)


def _list_net(train: Ranked, _: Config) -> Blocks:
    data = ListData(train.inputs, train.grades, train.lengths, relevant=False)
    return data, ListNet(train.grades, train.lengths)


OBJECTIVES: dict[str, tuple[Kind, Callable[[Any, Config], Blocks]]] = {
    "auc": ("classes", lambda train, _: _tasks(MultiTaskAUC, train)),
    "auc-odds": ("classes", lambda train, _: _tasks(MultiTaskAUC, train)),
    "auc-exp": ("classes", _exponential),
    "gap": ("classes", lambda train, _: _tasks(MultiTaskGap, train)),
    "ap": ("classes", _average_precision),
    "cox": ("survival", _cox),
    "ndcg": ("ranking", _ndcg),
    "listnet": ("ranking", _list_net),
}
"""The kind of data that each needs, and what it makes of the training part of a run."""

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


def kind_of(objective: str) -> Kind | None:
    """The kind of data that an objective needs; None for a user's own, which may be any.

    Examples:
        >>> kind_of("cox")
        'survival'
    """
    return None if is_named(objective) else OBJECTIVES[objective][0]


def blocks_of(config: Config, train: Any) -> Blocks:
    """The training part in blocks, and the objective on them.

    A user's own objective is a class, which is called with the number of tasks and gets
    ``TaskBatch``, or a function from the training part (``Classified``, ``Survival`` or
    ``Ranked``) to both.

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
        return make(train, config)
    own = load_named("objective", objective)
    if isinstance(own, type) and issubclass(own, Objective):
        if kind != "classes":
            raise ValueError(
                f"objective {objective}: a class gets AUC tasks, but {data} has {_SAID[kind]}; "
                "name a function from the data to (blocks, objective)"
            )
        return _tasks(own, train)
    if not callable(own):
        raise ValueError(
            f"objective {objective} must be a subclass of fcco.Objective, or a function from the "
            f"data to (blocks, objective), got {type(own).__name__}"
        )
    made = own(train)
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], Objective)):
        raise ValueError(f"objective {objective} must return (blocks, objective), got {made!r:.80}")
    return made


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
        times, events = test.times, test.events
        return lambda scores: {"c_index": concordance_index(scores[:, 0], times, events)}
    if isinstance(test, Ranked):
        grades, lengths = test.grades, test.lengths
        return lambda scores: {"ndcg": ndcg(scores[:, 0], grades, lengths, 10)}
    labels = task_labels(test.classes, count)
    return lambda scores: {
        "auc": macro_auroc(scores, labels),
        "ap": macro_average_precision(scores, labels),
    }
