"""Objectives on the census data a9a: worst cases and rankings of a linear model.

A subset of the rows keeps a pass short enough for batches of a few samples.
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from fcco.objectives import (
    DRO,
    AveragePrecision,
    GroupCVaR,
    GroupDRO,
    MultiTaskGap,
    PartialAUC,
    PNormPush,
    Squared,
    SquaredHinge,
)
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

_RIDGE = 1e-3

# Columns of one attribute, of which a row has at most one.
AGE, EDUCATION, OCCUPATION = slice(0, 5), slice(34, 39), slice(46, 60)


def census(data_dir: Path | None, count: int) -> tuple[Tensor, Tensor]:
    """Binary features with a constant column, and labels 1 or 0, of some rows."""
    train, _ = load_classes("a9a", data_dir)
    rows = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:count]
    x, y = train.inputs[rows].flatten(1).double(), train.classes[rows]
    return torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=1), y


def logistic(outputs: Tensor, targets: Tensor) -> Tensor:
    """The logistic loss of each sample; targets are 1 or 0."""
    return softplus((1 - 2 * targets) * outputs.squeeze(-1))


def attribute(x: Tensor, columns: slice) -> Tensor:
    """The value of an attribute in each row."""
    return x[:, columns].argmax(1)


def numbered(keys: Tensor) -> Tensor:
    """Group numbers without gaps."""
    return keys.unique(return_inverse=True)[1]


def group_dro(data_dir: Path | None) -> Problem:
    """Ten groups, age by label: the soft worst mean loss."""
    x, y = census(data_dir, 4000)
    groups = numbered(2 * attribute(x, AGE) + y)
    return Problem(
        x,
        lambda: GroupDRO(groups, y, temperature=0.2, loss=logistic, cap=10.0),
        linear(x.shape[1]),
        convex=True,
        penalty=_RIDGE,
    )


def small_groups(data_dir: Path | None) -> Problem:
    """A thousand groups of four samples: m is large, and each block has little to sample."""
    x, y = census(data_dir, 4000)
    groups = torch.arange(len(y)) // 4
    return Problem(
        x,
        lambda: GroupDRO(groups, y, temperature=0.5, loss=logistic, cap=10.0),
        linear(x.shape[1]),
        convex=True,
        penalty=_RIDGE,
    )


def cvar(data_dir: Path | None) -> Problem:
    """The worst fifth of the groups occupation by education; the threshold is learned too."""
    x, y = census(data_dir, 4000)
    groups = numbered(5 * attribute(x, OCCUPATION) + attribute(x, EDUCATION))
    return Problem(
        x,
        lambda: GroupCVaR(groups, y, fraction=0.2, loss=logistic),
        linear(x.shape[1]),
        convex=True,
        penalty=_RIDGE,
    )


def log_sum_exp(data_dir: Path | None) -> Problem:
    """A soft maximum of the losses of all samples: one block."""
    x, y = census(data_dir, 4000)
    signed = x * (1 - 2 * y).unsqueeze(1)  # the loss is softplus of its score

    def model() -> nn.Module:
        return nn.Sequential(linear(x.shape[1])(), nn.Softplus())

    return Problem(
        signed,
        lambda: DRO(len(y), temperature=0.5),
        model,
        convex=True,
        penalty=_RIDGE,
        sampling="samples",
    )


def push(data_dir: Path | None) -> Problem:
    """The p-norm push with p = 2, whose slopes are affine; one block per negative."""
    x, y = census(data_dir, 2000)
    return Problem(
        x,
        lambda: PNormPush(y, power=2.0),
        linear(x.shape[1]),
        convex=True,
        penalty=_RIDGE,
        paired=lambda: PNormPush(y, power=2.0, paired=True),
        sampling="samples",
        labels=(y,),
    )


def partial_auc(data_dir: Path | None) -> Problem:
    """One-way partial AUC; one block per positive."""
    x, y = census(data_dir, 2000)
    return Problem(
        x,
        lambda: PartialAUC(y, temperature=1.0),
        linear(x.shape[1]),
        convex=True,
        penalty=_RIDGE,
        sampling="samples",
        labels=(y,),
    )


def average_precision(data_dir: Path | None) -> Problem:
    """Average precision with a squared hinge; not convex."""
    x, y = census(data_dir, 2000)
    return Problem(
        x,
        lambda: AveragePrecision(y, surrogate=SquaredHinge()),
        linear(x.shape[1]),
        penalty=_RIDGE,
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
    """The mean squared gap of two classes within each group, occupation by age: affine slopes."""
    x, y = census(data_dir, 4000)
    groups = numbered(5 * attribute(x, OCCUPATION) + attribute(x, AGE))
    members = groups.unsqueeze(1) == torch.arange(int(groups.max()) + 1)
    labels = torch.where(members, y.unsqueeze(1), -1)
    return Problem(
        x,
        lambda: MultiTaskGap(labels, surrogate=Squared()),
        lambda: _SharedScore(x.shape[1], labels.shape[1]),
        penalty=_RIDGE,
        paired=lambda: MultiTaskGap(labels, surrogate=Squared(), paired=True),
    )
