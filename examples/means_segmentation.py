"""Segmentation with one volume per step: for those whose volumes fill the memory.

Seven of ten volumes are healthy. Alone they have no Dice that could be improved, so the loss of a
batch never learns from its false alarms there. DiceLoss trains for the Dice of the whole data set.

One line changes against the ordinary program: the one that builds the criterion.

pip install fcco
python examples/means_segmentation.py [--quick]
"""

import sys

import torch
from torch import nn

import fcco

epochs, count = (2, 40) if "--quick" in sys.argv else (8, 120)


def volumes(healthy=0.7):
    """Noise, and in some of the volumes a ball that is slightly brighter; masks of the balls."""
    grid = torch.stack(torch.meshgrid(*[torch.arange(12.0)] * 3, indexing="ij"))
    radius = torch.empty(count, 1, 1, 1).uniform_(1, 5)
    radius[torch.rand(count) < healthy] = 0
    mask = ((grid - 12 * torch.rand(count, 3, 1, 1, 1)).norm(dim=1) < radius).float().unsqueeze(1)
    return 0.6 * mask + torch.randn(mask.shape), mask


def batch_dice(p, y):
    """1 - Dice of all that it is given, with the usual small number against 0 / 0."""
    return 1 - (2 * (p * y).sum() + 1e-5) / (p.sum() + y.sum() + 1e-5)


def train(name, criterion, epochs):
    torch.manual_seed(0)
    (x, y), (x_test, y_test) = volumes(), volumes()
    layers = nn.Conv3d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv3d(8, 1, 3, padding=1), nn.Sigmoid()
    model = nn.Sequential(*layers)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for i in torch.randperm(count).split(1):
            loss = criterion(model(x[i]), y[i])
            opt.zero_grad()
            loss.backward()
            opt.step()
    with torch.no_grad():
        found, test = batch_dice(model(x), y), batch_dice(model(x_test), y_test)
    print(
        f"{name:<18} objective {found:.3f} (1 - Dice of the data set), of the test set {test:.3f}"
    )


train("untrained", batch_dice, 0)
train("Dice of the batch", batch_dice, epochs)
train("DiceLoss", fcco.losses.DiceLoss(), epochs)  # the line that changes
