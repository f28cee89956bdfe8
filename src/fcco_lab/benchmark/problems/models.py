"""The models of the problems."""

from collections.abc import Callable

from torch import nn

__all__ = ["linear", "perceptron"]


def linear(inputs: int, outputs: int = 1) -> Callable[[], nn.Module]:
    """A linear model that starts at 0, where F is the same for all."""

    def build() -> nn.Module:
        model = nn.Linear(inputs, outputs, bias=False)
        nn.init.zeros_(model.weight)
        return model

    return build


def perceptron(inputs: int, outputs: int = 1, hidden: int = 32) -> Callable[[], nn.Module]:
    """Two hidden layers; smooth, so that L-BFGS has a fair chance."""
    return lambda: nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.Tanh(),
        nn.Linear(hidden, hidden),
        nn.Tanh(),
        nn.Linear(hidden, outputs),
    )
