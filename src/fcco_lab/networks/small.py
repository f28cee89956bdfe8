"""Networks small enough for a laptop: linear, one hidden layer, a compact convolutional one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

__all__ = ["compact_cnn", "linear", "mlp"]


def linear(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """One affine map of all features.

    Examples:
        >>> linear((1, 8, 8), 10)[1]
        Linear(in_features=64, out_features=10, bias=True)
    """
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), outputs))


def mlp(shape: tuple[int, ...], outputs: int, width: int = 128) -> nn.Module:
    """One hidden layer.

    Examples:
        >>> len(mlp((123,), 2))
        4
    """
    from torch import nn

    return nn.Sequential(
        nn.Flatten(), nn.Linear(math.prod(shape), width), nn.ReLU(), nn.Linear(width, outputs)
    )


def compact_cnn(shape: tuple[int, ...], outputs: int, width: int = 16) -> nn.Module:
    """Three strided convolutions with batch normalization, then the mean over positions.

    About 25,000 weights; each convolution halves the image.

    Examples:
        >>> import torch
        >>> compact_cnn((3, 32, 32), 10)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    from torch import nn

    layers: list[nn.Module] = []
    channels = shape[0]
    for wide in (width, 2 * width, 4 * width):
        layers += [
            nn.Conv2d(channels, wide, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU(),
        ]
        channels = wide
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, outputs)
    )
