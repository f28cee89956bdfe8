"""Training of a scoring network by batches, from the first step or from the last one."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import cos, pi
from typing import Any, NamedTuple

import torch
from joblib import hash as digest_of
from numpy.random import RandomState
from torch import Tensor, nn

from fcco.estimators.features import Standardized
from fcco.estimators.target import Target

__all__ = ["Fit", "Plan", "Rate", "Record", "cosine", "root", "scores_of"]

Rate = Callable[[int], float]
"""From the number of steps taken to the factor of the learning rate."""

_NUMBERS = 2**20
"""Features that are written out at a time."""


class Record(NamedTuple):
    """One entry of a history."""

    step: int
    """Steps taken; for a linear model, iterations of L-BFGS."""
    objective: float
    """The mean of the estimated objective over the steps since the last entry."""
    metric: float | None
    """The metric of the held-out samples, if there are any."""


@dataclass(frozen=True)
class Plan:
    """Numbers that shape every step; see ``AUCClassifier``."""

    learning_rate: float
    weight_decay: float
    batch_size: int


class Fit:
    """A network and the state of its optimization by AdamW.

    Args:
        network: the network, trained in place.
        plan: the settings of a step.
        seed: the seed of the batches.
        step: the number of steps that the network has taken.
    """

    def __init__(self, network: nn.Sequential, plan: Plan, *, seed: int, step: int = 0) -> None:
        self.network = network
        self.plan = plan
        self.step = step
        self._random = RandomState(seed)
        self._stepper = torch.optim.AdamW(_layers(network))
        self._phases: Any = ()
        self._digest = ""

    def steps(
        self, inputs: Standardized, target: Target, num_steps: int, rate: Rate, *, warm_up: int = 0
    ) -> Iterator[float]:
        """Take steps on some data, and yield the estimated objective after each.

        With the same data as in the last call the loss keeps its table, and two calls equal one
        longer run. ``warm_up`` is the number of steps of the first phase; all others are of the
        last.
        """
        digest = digest_of((inputs, target.arrays()))
        if digest != self._digest:
            self._phases, self._digest = target.phases(), digest
        count = inputs.shape[0]
        for number in range(num_steps):
            for group in self._stepper.param_groups:
                group["lr"] = self.plan.learning_rate * rate(self.step) * group["share"]
                group["weight_decay"] = self.plan.weight_decay
            size = min(self.plan.batch_size, count)
            # With replacement, so that weights are chances; a loss takes a repeated sample once.
            rows = self._random.choice(count, size, p=target.chances)
            phase = self._phases[0 if number < warm_up else -1]
            batch = torch.from_numpy(inputs[rows].array()).float()
            loss = phase(self.network(batch), torch.from_numpy(rows))
            self._stepper.zero_grad()
            loss.backward()
            self._stepper.step()
            self.step += 1
            yield float(loss.detach())


@torch.no_grad()
def scores_of(network: nn.Module, features: Standardized) -> Tensor:
    """Of all samples, in float64, chunk by chunk: sparse features are not written out whole."""
    dtype = next(network.parameters()).dtype
    size = max(1, _NUMBERS // features.shape[1])
    parts = (features[start : start + size] for start in range(0, features.shape[0], size))
    return torch.cat([network(torch.from_numpy(part.array()).to(dtype)) for part in parts]).double()


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


def _layers(network: nn.Module) -> list[dict[str, Any]]:
    """One parameter group per layer, with its factor of the learning rate.

    An Adam-style step moves every weight by the same amount, and a sum of d weights by about
    sqrt(d) times as much. With the factor 1 / sqrt(d), one learning rate suits few and many
    features.
    """
    return [
        {"params": list(layer.parameters()), "share": layer.in_features**-0.5}
        for layer in network.modules()
        if isinstance(layer, nn.Linear)
    ]
