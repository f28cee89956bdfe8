"""Every network by its name on the command line."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from fcco_lab.choices import choose
from fcco_lab.networks.deep import densenet121, resnet
from fcco_lab.networks.small import compact_cnn, linear, mlp

if TYPE_CHECKING:
    from torch import nn

__all__ = ["NETWORKS", "build_network"]

NETWORKS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {
    "linear": linear,
    "mlp": mlp,
    "cnn": compact_cnn,
    "resnet18": partial(resnet, "resnet18", small=True),
    "resnet34": partial(resnet, "resnet34", small=True),
    "densenet121": partial(densenet121, small=True),
    "resnet18-imagenet": partial(resnet, "resnet18", small=False),
    "resnet34-imagenet": partial(resnet, "resnet34", small=False),
    "densenet121-imagenet": partial(densenet121, small=False),
}
"""From the shape of one input and the number of outputs to a network. ``-imagenet``: the stem for
large images, which needs a sixteenth of the work on small ones."""


def build_network(name: str, shape: tuple[int, ...], outputs: int, *, seed: int) -> nn.Module:
    """The network ``name``, with the same weights for the same seed; the global RNG is unchanged.

    Examples:
        >>> sum(p.numel() for p in build_network("linear", (64,), 10, seed=0).parameters())
        650
    """
    import torch  # here, for the names alone should not wait for it

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
