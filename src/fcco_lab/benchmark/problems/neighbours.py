"""Comparisons of embeddings: neighbourhood components and contrastive learning on digits."""

from pathlib import Path

import torch

from fcco.objectives import NCA, GlobalContrastive
from fcco_lab.benchmark.problem import Problem
from fcco_lab.benchmark.problems.models import perceptron
from fcco_lab.datasets import load_classes

__all__ = ["contrastive", "nca"]


def nca(data_dir: Path | None) -> Problem:
    """A linear map to four dimensions in which neighbours share their class; not convex."""
    train, _ = load_classes("digits", data_dir)
    x = train.inputs.flatten(1).double()
    return Problem(
        x,
        lambda: NCA(train.classes, logarithm=True),
        lambda: torch.nn.Linear(x.shape[1], 4, bias=False),
        penalty=1e-3,
        sampling="samples",
        labels=(train.classes,),
    )


def contrastive(data_dir: Path | None) -> Problem:
    """A small network that recognizes a noisy copy among all others; m = 2 N."""
    train, _ = load_classes("digits", data_dir)
    x = train.inputs.flatten(1).double()
    noise = torch.randn(2, *x.shape, generator=torch.Generator().manual_seed(0)).double()
    first, second = x + 0.2 * noise[0], x + 0.2 * noise[1]
    return Problem(
        (first, second),
        lambda: GlobalContrastive(len(x), temperature=0.2),
        perceptron(x.shape[1], 16),
        sampling="samples",
    )
