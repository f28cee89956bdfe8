"""The scoring function: linear, or a small multi-layer perceptron."""

from collections.abc import Sequence

import torch
from torch import nn

__all__ = ["build_network"]


def build_network(
    features: int, hidden: Sequence[int], outputs: int, *, seed: int
) -> nn.Sequential:
    """Linear layers with ReLU between them, drawn by a seed of their own.

    The last layer starts at zero: all scores are equal, and a linear model is not random.

    Args:
        features: the number of features.
        hidden: widths of the hidden layers; an empty sequence is a linear model.
        outputs: the number of scores.
        seed: the seed of the hidden layers.

    Examples:
        >>> network = build_network(4, (8,), 1, seed=0)
        >>> network(torch.ones(2, 4)).tolist()
        [[0.0], [0.0]]
    """
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):  # the global generator is left alone
        torch.manual_seed(seed)
        for width in hidden:
            layers += [nn.Linear(features, width), nn.ReLU()]
            features = width
        last = nn.Linear(features, outputs)
    for parameter in last.parameters():
        nn.init.zeros_(parameter)
    return nn.Sequential(*layers, last)
