"""The scoring function: linear, or a small multi-layer perceptron."""

from collections.abc import Sequence
from math import sqrt

import torch
from torch import nn
from torch.nn.utils import skip_init

__all__ = ["build_network"]


def build_network(
    features: int, hidden: Sequence[int], outputs: int, *, bias: bool, seed: int
) -> nn.Sequential:
    """Linear layers with ReLU between them, drawn from a generator of their own.

    The last layer starts at zero: all scores are equal, and a linear model is not random.

    Args:
        features: the number of features.
        hidden: widths of the hidden layers; an empty sequence is a linear model.
        outputs: the number of scores.
        bias: whether the scores have an offset.
        seed: the seed of the hidden layers.

    Examples:
        >>> network = build_network(4, (8,), 1, bias=False, seed=0)
        >>> network(torch.ones(2, 4)).tolist()
        [[0.0], [0.0]]
    """
    generator = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    for width in hidden:
        # skip_init: the constructor would draw from the global generator
        layer = skip_init(nn.Linear, features, width)
        nn.init.kaiming_uniform_(layer.weight, a=sqrt(5), generator=generator)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.ReLU()]
        features = width
    last = skip_init(nn.Linear, features, outputs, bias=bias)
    for parameter in last.parameters():
        nn.init.zeros_(parameter)
    return nn.Sequential(*layers, last)
