"""What the engine trains with: something that takes steps and counts what they cost."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from fcco.kernel.queries import Queries

__all__ = ["Learner"]


class Learner(ABC):
    """A model's optimizer with its stream of batches.

    ``work`` counts inputs passed forward + 2 x inputs passed backward, ``samples`` what the paper
    counts: B1 x inner batch a step, whatever is done with them.
    """

    model: nn.Module
    opt: torch.optim.Optimizer
    work: int = 0
    samples: int = 0

    @property
    @abstractmethod
    def queries(self) -> Queries:
        """Values and gradients of inner samples asked for so far."""

    @abstractmethod
    def step(self) -> None:
        """Take one step."""

    def scores(self, inputs: Tensor) -> Tensor:
        """One column per task; larger means more likely positive."""
        outputs: Tensor = self.model(inputs)
        return outputs

    def set_lr(self, lr: float) -> None:
        """Use this step size from now on."""
        for group in self.opt.param_groups:
            group["lr"] = lr

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything but the model's weights."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a whole state, which may be of another number of ranks."""
