"""Training of a scoring network on a target, from the first step or from the last one."""

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
"""From the number of steps taken to the factor of the learning rate."""


@dataclass(frozen=True)
class Plan:
    """Numbers that shape every step; see ``AUCClassifier``."""

    learning_rate: float
    weight_decay: float
    blocks_per_step: int
    samples_per_block: int


class Fit:
    """A network and the state of its optimization.

    SOX tracks the inner values and smooths the gradient, and torch's AdamW takes the step. The
    memory of AdamW therefore survives a change of the data, which changes the blocks.

    Args:
        network: the network, trained in place.
        plan: the settings of a step.
        seed: the seed of the batches.
        step: the number of steps that the network has taken.
    """

    # Safe on every objective here, with and without a hidden layer. MSVRM's correction is not: with
    # Adam-style steps of 0.03 its rows of exp(h_j - h_i), which are probed rarely, diverge.
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
        """Take steps on some data, and yield the estimated objective after each.

        With the same data as in the last call the table is kept, and two calls equal one longer
        run. Other data has other blocks and starts a new table.
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


def _digest(inputs: Tensor, target: Target) -> bytes:
    """A digest that is equal only for equal data."""
    state = blake2b()
    for array in (inputs.numpy(), *target.arrays()):
        state.update(f"{array.dtype} {array.shape}".encode())
        state.update(np.ascontiguousarray(array).tobytes())
    return state.digest()
