"""Objectives on the census data a9a: worst cases and rankings of a linear model.

A subset of the rows keeps a pass short enough for batches of a few samples: 8000, or 4000 where
all pairs are formed.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from fcco import objectives
from fcco.problem.sampled import SampledObjective
from fcco_lab.benchmark.problem import Problem
from fcco_lab.benchmark.problems.models import linear
from fcco_lab.datasets import load_classes

__all__ = [
    "auc_groups",
    "average_precision",
    "census",
    "cvar",
    "group_dro",
    "log_sum_exp",
    "partial_auc",
    "push",
    "small_groups",
]

# Columns of one attribute, of which a row has at most one.
_AGE, _EDUCATION, _OCCUPATION = slice(0, 5), slice(34, 39), slice(46, 60)


def census(data_dir: Path | None, count: int = 8000) -> tuple[Tensor, Tensor]:
    """Binary features with a constant column, and labels 1 or 0, of some rows."""
    train, _ = load_classes("a9a", data_dir)
    rows = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:count]
    x, y = train.inputs[rows].flatten(1).double(), train.classes[rows]
    return torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=1), y


def _problem(x: Tensor, objective: Callable[[], SampledObjective], **more: Any) -> Problem:
    """A linear model with a small penalty."""
    return Problem(x, objective, **{"model": linear(x.shape[1]), "penalty": 1e-3, **more})


def _logistic(outputs: Tensor, targets: Tensor) -> Tensor:
    """The logistic loss of each sample; targets are 1 or 0."""
    losses: Tensor = softplus((1 - 2 * targets) * outputs.squeeze(-1))
    return losses


def _groups(*keys: Tensor) -> Tensor:
    """One group for every combination of values that occurs, numbered without gaps."""
    groups: Tensor = torch.stack(keys, dim=1).unique(dim=0, return_inverse=True)[1]
    return groups


def group_dro(data_dir: Path | None) -> Problem:
    """Ten groups, age by label: the soft worst mean loss."""
    x, y = census(data_dir)
    groups = _groups(x[:, _AGE].argmax(1), y)

    return _problem(
        x,
        lambda: objectives.GroupDRO(groups, y, temperature=0.5, loss=_logistic, cap=10.0),
        convex=True,
    )


def small_groups(data_dir: Path | None) -> Problem:
    """Four thousand groups of two samples: m is large, and a block has little to sample."""
    x, y = census(data_dir)
    groups = torch.arange(len(y)) // 2

    return _problem(
        x,
        lambda: objectives.GroupDRO(groups, y, temperature=0.5, loss=_logistic, cap=10.0),
        convex=True,
    )


def cvar(data_dir: Path | None) -> Problem:
    """The worst fifth of the groups occupation by education; the threshold is learned too."""
    x, y = census(data_dir)
    groups = _groups(x[:, _OCCUPATION].argmax(1), x[:, _EDUCATION].argmax(1))

    return _problem(
        x,
        lambda: objectives.GroupCVaR(groups, y, fraction=0.2, loss=_logistic),
        convex=True,
    )


def log_sum_exp(data_dir: Path | None) -> Problem:
    """A soft maximum of the losses of all samples: one block."""
    x, y = census(data_dir)
    signed = x * (1 - 2 * y).unsqueeze(1)  # the loss is softplus of its score
    return _problem(
        signed,
        lambda: objectives.DRO(len(y), temperature=0.5),
        model=lambda: nn.Sequential(linear(x.shape[1])(), nn.Softplus()),
        convex=True,
        sampling="samples",
    )


def push(data_dir: Path | None) -> Problem:
    """The p-norm push with p = 2, whose slopes are affine; one block per negative."""
    x, y = census(data_dir, 4000)
    return _problem(
        x,
        lambda: objectives.PNormPush(y, power=2.0),
        paired=lambda: objectives.PNormPush(y, power=2.0, paired=True),
        convex=True,
        sampling="samples",
    )


def partial_auc(data_dir: Path | None) -> Problem:
    """One-way partial AUC; one block per positive."""
    x, y = census(data_dir, 4000)
    return _problem(
        x,
        lambda: objectives.PartialAUC(y, temperature=1.0),
        convex=True,
        sampling="samples",
        labels=(y,),
    )


def average_precision(data_dir: Path | None) -> Problem:
    """Average precision with a squared hinge; not convex."""
    x, y = census(data_dir, 4000)
    return _problem(
        x,
        lambda: objectives.AveragePrecision(y, surrogate=objectives.SquaredHinge()),
        sampling="samples",
        labels=(y,),
    )


class _SharedScore(nn.Module):
    """One linear score for all tasks."""

    def __init__(self, inputs: int, tasks: int) -> None:
        super().__init__()
        self.score, self.tasks = linear(inputs)(), tasks

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, tasks), all columns alike."""
        outputs: Tensor = self.score(inputs).expand(-1, self.tasks)
        return outputs


def auc_groups(data_dir: Path | None) -> Problem:
    """The squared gap of two classes within each group, occupation by age: affine slopes."""
    x, y = census(data_dir)
    groups = _groups(x[:, _OCCUPATION].argmax(1), x[:, _AGE].argmax(1))
    members = groups.unsqueeze(1) == torch.arange(int(groups.max()) + 1)
    labels = torch.where(members, y.unsqueeze(1), -1)
    square = objectives.Squared()
    return _problem(
        x,
        lambda: objectives.MultiTaskGap(labels, surrogate=square),
        paired=lambda: objectives.MultiTaskGap(labels, surrogate=square, paired=True),
        model=lambda: _SharedScore(x.shape[1], labels.shape[1]),
    )
