"""The networks of the benchmarks: the shape of an input, and how to build one."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fcco_lab.networks import build_network


@dataclass(frozen=True)
class Network:
    shape: tuple[int, ...]
    build: Any


def mlp(outputs):
    return nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, outputs)
    )


def cnn(outputs):
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(512, outputs),
    )


MLP = Network((784,), mlp)
CNN = Network((1, 28, 28), cnn)


def resnet18(pixels):
    """With the stem for small images."""
    shape = (3, pixels, pixels)
    return Network(shape, lambda outputs: build_network("resnet18", shape, outputs, seed=0))


def bare(network, inputs, targets):
    """Forward, binary cross-entropy and backward: what any training step on a batch does."""
    criterion = nn.BCEWithLogitsLoss()

    def run():
        criterion(network(inputs), targets).backward()
        network.zero_grad()

    return run


def moved(network, before):
    """Whether any parameter differs from ``before``, a list of copies; all must be finite."""
    assert all(p.isfinite().all() for p in network.parameters())
    return any(not torch.equal(p, q) for p, q in zip(network.parameters(), before, strict=True))
