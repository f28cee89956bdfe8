"""Networks for images of any size, grey or colour, by name."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from fcco_lab.choices import choose

__all__ = ["NETWORKS", "build_network"]


def linear(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """One affine map of all features.

    Examples:
        >>> linear((1, 8, 8), 10)[1]
        Linear(in_features=64, out_features=10, bias=True)
    """
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), outputs))


def mlp(shape: tuple[int, ...], outputs: int, width: int = 128) -> nn.Module:
    """One hidden layer."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(math.prod(shape), width), nn.ReLU(), nn.Linear(width, outputs)
    )


def compact_cnn(shape: tuple[int, ...], outputs: int, width: int = 16) -> nn.Module:
    """Three strided convolutions with batch normalization, then the mean over positions.

    About 25,000 weights; each convolution halves the image.
    """
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


def resnet(make: str, shape: tuple[int, ...], outputs: int, *, small: bool) -> nn.Module:
    """ResNet-18 or -34 of monai; ``small``: with a stem for small images."""
    from monai.networks import nets  # slow to import

    # A 7x7 convolution of stride 2 and a pooling layer, made for 224 pixels, would leave a quarter
    # of a 32-pixel image's side; small images get a 3x3 convolution of stride 1 and no pooling.
    stem = {"conv1_t_size": 7, "conv1_t_stride": 2, "no_max_pool": False}
    if small:
        stem = {"conv1_t_size": 3, "conv1_t_stride": 1, "no_max_pool": True}
    network: nn.Module = getattr(nets, make)(
        spatial_dims=2, n_input_channels=shape[0], num_classes=outputs, **stem
    )
    return network


def densenet121(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """DenseNet-121 of monai, with a stem for small images."""
    from monai.networks.nets import DenseNet121  # type: ignore[attr-defined]

    network: Any = DenseNet121(spatial_dims=2, in_channels=shape[0], out_channels=outputs)
    # Its stem cannot be chosen.
    network.features.conv0 = nn.Conv2d(shape[0], 64, 3, padding=1, bias=False)
    network.features.pool0 = nn.Identity()
    return network  # type: ignore[no-any-return]


NETWORKS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {
    "linear": linear,
    "mlp": mlp,
    "cnn": compact_cnn,
    "resnet18": partial(resnet, "resnet18", small=True),
    "resnet34": partial(resnet, "resnet34", small=True),
    "densenet121": densenet121,
    "resnet18-imagenet": partial(resnet, "resnet18", small=False),
    "resnet34-imagenet": partial(resnet, "resnet34", small=False),
}
"""From the shape of one input and the number of outputs to a network. ``-imagenet``: the stem for
large images, which needs a sixteenth of the work on small ones."""


def build_network(name: str, shape: tuple[int, ...], outputs: int, *, seed: int) -> nn.Module:
    """The network ``name``, with the same weights for the same seed; the global RNG is unchanged.

    "auto" is cnn for images and mlp for features.

    Examples:
        >>> sum(p.numel() for p in build_network("linear", (64,), 10, seed=0).parameters())
        650
    """
    if name == "auto":
        name = "cnn" if len(shape) == 3 else "mlp"
    choose("network", name, NETWORKS)
    if len(shape) != 3 and name not in ("linear", "mlp"):
        raise ValueError(
            f"network {name!r} takes images, but an input has shape {shape}: use mlp or linear"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = NETWORKS[name](shape, outputs)
    # convolutions on the CPU take two thirds of the time in this order
    if len(shape) == 3:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network
