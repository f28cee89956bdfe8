"""Group DRO on a spurious correlation: coloured digits.

The label is whether a digit is below five. In training its colour agrees with the label for 95 of
100 samples, so a network learns the colour first; in the test set colour and label are independent.
Beside plain and group-balanced cross-entropy, with and without strong weight decay.

pip install fcco[sklearn]
python examples/loss_groups.py [--quick]
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import fcco

epochs, seeds = (3, 1) if "--quick" in sys.argv else (30, 5)
images, digit = (torch.tensor(part) for part in load_digits(return_X_y=True))
images, label = images.float() / 16, (digit < 5).long()


def coloured(rows, agreement):
    """Images with two channels, one of which is empty; labels; groups, label x colour."""
    agrees = torch.rand(len(rows)) < agreement
    colour = torch.where(agrees, label[rows], 1 - label[rows])
    channels = torch.nn.functional.one_hot(colour).float()
    x = (images[rows].unsqueeze(1) * channels.unsqueeze(2)).flatten(1)
    return x, label[rows], 2 * label[rows] + colour


def worst_error(how, weight_decay, seed):
    """The test error of the worst of the four groups."""
    torch.manual_seed(seed)
    order = torch.randperm(len(images))
    x, y, group = coloured(order[:1200], 0.95)
    x_test, y_test, group_test = coloured(order[1200:], 0.5)
    model = torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=weight_decay)
    criterion = fcco.losses.GroupDROLoss(4, temperature=0.5)  # instead of the mean over the batch
    sampler = None
    if how == "group-balanced":
        sampler = WeightedRandomSampler(1 / group.bincount()[group].double(), len(group))
    data = TensorDataset(x, y, group)
    for _ in range(epochs):
        for inputs, labels, groups in DataLoader(data, 32, sampler is None, sampler):
            losses = cross_entropy(model(inputs), labels, reduction="none")
            loss = criterion(losses, groups) if how == "group DRO" else losses.mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    with torch.no_grad():
        wrong = (model(x_test).argmax(1) != y_test).float()
    return max(wrong[group_test == g].mean().item() for g in range(4))


for how in ("plain", "group-balanced", "group DRO"):
    for weight_decay in (0.01, 1.0):
        found = torch.tensor([worst_error(how, weight_decay, seed) for seed in range(seeds)])
        spread = f" ± {found.std():.3f}" if seeds > 1 else ""
        name = f"{how}, weight decay {weight_decay}"
        print(f"{name:<35} worst-group error {found.mean():.3f}{spread}")
