"""Training of a scoring network on a target, from the first step or from where it stopped."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fcco.data import block_loader
from fcco.estimators.target import Target
from fcco.optim import SOX

__all__ = ["Fit", "Plan", "Rate"]

Rate = Callable[[int], float]
"""Steps taken so far to the factor of the learning rate."""


@dataclass(frozen=True)
class Plan:
    """Numbers that shape every step; see ``AUCClassifier``."""

    learning_rate: float
    weight_decay: float
    blocks_per_step: int
    samples_per_block: int


class Fit:
    """A network and the state of its optimization.

    SOX tracks the inner values and smooths the gradient, and torch's AdamW takes the step: so the
    memory of the step outlives a change of the data, with which the blocks change.

    Args:
        network: what is trained, in place.
        plan: how.
        seed: of the stream of batches.
        step: steps that the network has behind it.
    """

    # Safe on every objective here, with as without a hidden layer. MSVRM's correction is not: with
    # Adam-style steps of 0.03 its rows of exp(h_j - h_i), each probed rarely, run away.
    alpha, beta = 0.1, 0.5

    def __init__(self, network: nn.Module, plan: Plan, *, seed: int, step: int = 0) -> None:
        self.network = network
        self.plan = plan
        self.seed = seed
        self.step = step
        self._stepper = torch.optim.AdamW(
            _layers(network),
            betas=(0.0, 0.999),  # SOX's z is the first moment
        )
        self._estimator: SOX | None = None
        self._digest = b""

    def steps(self, inputs: Tensor, target: Target, num_steps: int, rate: Rate) -> Iterator[float]:
        """Take steps on some data, and give after each what it saw of the objective.

        The same data as the last time, and the table goes on: two runs are one long one. Other
        data has other blocks, and begins a new table.
        """
        data, objective = target.problem(inputs)
        digest = _digest(inputs, target)
        estimator = self._estimator
        if estimator is None or digest != self._digest:
            estimator = SOX(
                self.network.parameters(), objective, lr=1.0, alpha=self.alpha, beta=self.beta
            )
            self._estimator, self._digest = estimator, digest
        loader = block_loader(
            data,
            objective,
            blocks_per_step=min(self.plan.blocks_per_step, data.num_blocks),
            samples_per_block=self.plan.samples_per_block,
            num_steps=self.step + num_steps,
        )
        loader.load_state_dict({"step": self.step, "seed": self.seed})
        for batch in loader:
            for group in self._stepper.param_groups:
                group["lr"] = self.plan.learning_rate * rate(self.step) * group["share"]
                group["weight_decay"] = self.plan.weight_decay
            value = estimator.estimate(partial(objective.inner, self.network, batch))
            self._stepper.step()
            self.step += 1
            yield float(value)


def _layers(network: nn.Module) -> list[dict[str, Any]]:
    """A group of parameters for each layer, with its share of the learning rate.

    An Adam-style step moves every weight by as much, and a sum of d of them by about sqrt(d): with
    the share 1 / sqrt(d), one learning rate suits data of few and of many features.
    """
    return [
        {"params": list(layer.parameters()), "share": layer.in_features**-0.5}
        for layer in network.modules()
        if isinstance(layer, nn.Linear)
    ]


def _digest(inputs: Tensor, target: Target) -> bytes:
    """Equal for equal data alone, without keeping the data."""
    state = blake2b()
    for array in (inputs.numpy(), *target.arrays()):
        state.update(f"{array.dtype} {array.shape}".encode())
        state.update(np.ascontiguousarray(array).tobytes())
    return state.digest()
