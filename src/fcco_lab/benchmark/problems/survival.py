"""Survival data: GBSG, METABRIC and SUPPORT."""

from pathlib import Path

from torch import Tensor

from fcco.objectives import Cox
from fcco_lab.benchmark.problem import Problem
from fcco_lab.benchmark.problems.models import linear
from fcco_lab.datasets import load_survival

__all__ = ["cox", "standardized"]


def standardized(inputs: Tensor) -> Tensor:
    """Columns with mean 0 and deviation 1, in float64; constant columns are left out."""
    x = inputs.flatten(1).double()
    x = x[:, x.std(0) > 0]
    return (x - x.mean(0)) / x.std(0)


def cox(name: str, data_dir: Path | None) -> Problem:
    """Cox's partial likelihood of a linear score; convex, one block per event."""
    train, _ = load_survival(name, data_dir)
    x = standardized(train.inputs)
    labels = train.times, train.events
    return Problem(
        x,
        lambda: Cox(*labels),
        linear(x.shape[1]),
        convex=True,
        sampling="samples",
        labels=labels,
    )
