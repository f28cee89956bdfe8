"""A whole training: a decaying learning rate, early stopping, the best weights."""

from functools import partial
from math import cos, pi
from typing import NamedTuple

import torch
from torch import Tensor

from fcco.estimators.target import Target
from fcco.estimators.training import Fit, Rate
from fcco.schedules.stopping import keep_best

__all__ = ["Record", "cosine", "root", "train"]


class Record(NamedTuple):
    """One entry of a history."""

    step: int
    """Steps taken."""
    objective: float
    """The mean of the estimated objective over the steps since the last entry."""
    metric: float | None
    """The metric of the held-out samples, if there are any."""


def train(
    training: Fit,
    inputs: Tensor,
    target: Target,
    num_steps: int,
    *,
    rate: Rate,
    every: int,
    patience: int,
    held_out: tuple[Tensor, Target] | None = None,
) -> list[Record]:
    """Take ``num_steps``, or fewer if the metric of the held-out samples stops rising.

    Args:
        training: the training, changed in place.
        inputs: the samples.
        target: their labels.
        num_steps: the largest number of steps.
        rate: from the number of steps taken to the factor of the learning rate.
        every: steps between two evaluations of the metric.
        patience: evaluations without a rise before it stops.
        held_out: samples and labels for the metric; the weights that are best on them are kept.
    """
    found = keep_best(
        training.network,
        training.steps(inputs, target, num_steps, rate),
        num_steps,
        every=every,
        metric=None if held_out is None else partial(_metric, training, *held_out),
        patience=patience,
    )
    return [Record(training.step, sum(seen) / len(seen), metric) for seen, metric in found]


def cosine(num_steps: int) -> Rate:
    """From 1 down to 0 in ``num_steps``.

    Examples:
        >>> cosine(10)(0), round(cosine(10)(5), 6)
        (1.0, 0.5)
    """
    return lambda step: (1 + cos(pi * step / num_steps)) / 2


def root(step: int) -> float:
    """1 at first, then proportional to 1/sqrt: for a training without a known last step.

    Examples:
        >>> root(0), root(300)
        (1.0, 0.5)
    """
    return float((1 + step / 100) ** -0.5)


@torch.no_grad()
def _metric(training: Fit, inputs: Tensor, target: Target) -> float:
    return target.metric(training.network(inputs))
