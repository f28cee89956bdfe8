"""Small multi-layer perceptrons for scores, and their training with batches."""

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import Any

import torch
from joblib import hash as digest_of
from numpy.random import RandomState
from torch import Tensor, nn

from fcco.estimators.features import Standardized
from fcco.estimators.target import Phase, Target

__all__ = ["Training", "build_network", "network_scores"]

_NUMBERS = 2**20
"""Number of features that are converted to a dense array at a time."""

_DIVERGED = (
    "learning_rate is too large, or features lie far outside the range that set their scales: "
)
"""The beginning of the message of an error about numbers that are not finite."""


def build_network(
    features: int, hidden: Sequence[int], outputs: int, *, seed: int
) -> nn.Sequential:
    """Return linear layers with ReLU between them, initialized with a seed of their own.

    The last layer starts at zero. So all scores are equal, and a linear model is not random.

    Args:
        features: the number of features.
        hidden: the widths of the hidden layers; an empty sequence gives a linear model.
        outputs: the number of scores.
        seed: the seed of the hidden layers.

    Examples:
        >>> network = build_network(4, (8,), 1, seed=0)
        >>> network(torch.ones(2, 4)).tolist()
        [[0.0], [0.0]]
    """
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):  # the global generator must not change
        torch.manual_seed(seed)
        for width in hidden:
            layers += [nn.Linear(features, width), nn.ReLU()]
            features = width
        last = nn.Linear(features, outputs)
    for parameter in last.parameters():
        nn.init.zeros_(parameter)
    return nn.Sequential(*layers, last)


class Training:
    """A network and the state of its training by AdamW.

    Args:
        network: the network, which is trained in place.
        seed: the seed of the batches.
        step: the number of steps that the network has taken.
    """

    def __init__(self, network: nn.Sequential, *, seed: int, step: int = 0) -> None:
        self.network = network
        self.step = step
        self._random = RandomState(seed)
        self._optimizer = torch.optim.AdamW(_parameter_groups(network))
        self._phases: Sequence[Phase] = ()
        self._digest = ""

    def steps(
        self,
        inputs: Standardized,
        target: Target,
        rates: Iterable[float],
        *,
        weight_decay: float,
        batch_size: int,
        warm_up: int = 0,
    ) -> Iterator[float]:
        """Take a step for each learning rate, and yield the estimated objective of each step.

        With the same data as in the last call the losses keep their tables, and two calls equal
        one longer run.

        Args:
            inputs: the features of n samples.
            target: the labels of these samples.
            rates: the learning rates of the steps.
            weight_decay: decoupled, as in AdamW.
            batch_size: the number of samples per step.
            warm_up: the number of steps of the first phase; all others are of the last phase.
        """
        # New data need new tables; the same data, recognized by their hash, continue with the old.
        digest = digest_of((inputs, target))
        if digest != self._digest:
            self._phases, self._digest = target.phases(), digest
        count = inputs.shape[0]
        for number, rate in enumerate(rates):
            for group in self._optimizer.param_groups:
                group["lr"] = rate * group["share"]
                group["weight_decay"] = weight_decay
            # Draw with replacement, so that weights are probabilities. A loss counts a repeated
            # sample once.
            rows = self._random.choice(count, min(batch_size, count), p=target.probabilities)
            batch = torch.from_numpy(inputs[rows].array()).float()
            phase = self._phases[0 if number < warm_up else -1]
            yield self._step(phase, batch, torch.from_numpy(rows))

    def _step(self, phase: Phase, batch: Tensor, rows: Tensor) -> float:
        """Take a step on a batch, and return its objective; both must be finite."""
        try:
            loss = phase(self.network(batch), rows)
        except FloatingPointError as error:
            raise FloatingPointError(f"{_DIVERGED}{error}") from error
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self.step += 1
        value, weights = float(loss.detach()), self.network.parameters()
        if not (isfinite(value) and all(weight.isfinite().all() for weight in weights)):
            raise FloatingPointError(
                f"{_DIVERGED}in step {self.step} the objective is {value}, or a weight not finite"
            )
        return value


@torch.no_grad()
def network_scores(network: nn.Module, features: Standardized) -> Tensor:
    """Return scores of all samples in float64, in chunks, so that sparse features stay sparse.

    Scores that are not finite raise a ``FloatingPointError``.
    """
    dtype = next(network.parameters()).dtype
    size = max(1, _NUMBERS // features.shape[1])
    parts = (features[start : start + size] for start in range(0, features.shape[0], size))
    scores = [network(torch.from_numpy(part.array()).to(dtype)) for part in parts]
    found = torch.cat(scores).double()
    if not found.isfinite().all():
        raise FloatingPointError(f"{_DIVERGED}the scores of the network are not finite")
    return found


def _parameter_groups(network: nn.Module) -> list[dict[str, Any]]:
    """Return one parameter group per layer, with its factor of the learning rate.

    An Adam-style step moves every weight by the same amount, and a sum of d weights by about
    sqrt(d) times as much. With the factor 1 / sqrt(d), one learning rate suits few and many
    features.
    """
    return [
        {"params": list(layer.parameters()), "share": layer.in_features**-0.5}
        for layer in network.modules()
        if isinstance(layer, nn.Linear)
    ]
