"""Survival from bags on disk, one bag per step, as with whole-slide images that fill the memory.

A bag is a file with the features of some hundred patches (here: handwritten digits, of which the
eights raise the hazard); attention pooling gives one log risk per bag. The Cox loss of a batch
needs all its bags in memory at once and has no gradient at batch size 1. CoxLoss remembers the last
score of every patient: one bag per step is compared with all patients.

For slides of your own, write one file per slide and change `Slides.__getitem__`.

pip install fcco[sklearn]
python examples/loss_bags.py [--quick] [--lr LR] [--seed SEED]
"""

import argparse
import resource
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset

import fcco

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true")
parser.add_argument("--lr", type=float, help="of all contenders; by default that of each")
parser.add_argument("--seed", type=int, default=0)
given = parser.parse_args()
patients, test_patients, largest, epochs = (80, 80, 60, 3) if given.quick else (240, 240, 1500, 10)
LR = {1: 1e-3, 8: 3e-3, 32: 3e-3}  # the best of 0.001, 0.003 and 0.01 for each batch size


def write_slides(directory, count, pool):
    """Write the bags of some patients, one file each; return files, times and events."""
    images, digit = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images, eight = images[pool].float() / 16, digit[pool] == 8
    share = torch.rand(count) * 0.3
    paths = [directory / f"{pool.start}-{k}.pt" for k in range(count)]
    for path, part in zip(paths, share.tolist(), strict=True):
        size = int(torch.randint(largest // 4, largest, (1,)))  # bags cannot be stacked
        wanted = torch.where(eight, part / eight.sum(), (1 - part) / (~eight).sum())
        torch.save(images[torch.multinomial(wanted, size, replacement=True)], path)
    times = (-15 * share).exp() * torch.empty(count).uniform_(0.5, 1.5)
    return paths, times, torch.rand(count) < 0.7


class Slides(Dataset):
    """Features of one slide, read when it is needed, and its index."""

    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, k):
        return torch.load(self.paths[k], weights_only=True), k


class Attention(torch.nn.Module):
    """One score per bag: a weighted mean over its patches."""

    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU())
        self.weight, self.score = torch.nn.Linear(128, 1), torch.nn.Linear(128, 1)

    def forward(self, bag):
        features = self.features(bag)
        return (self.weight(features).softmax(0) * self.score(features)).sum(0)


def train(batch_size, epochs):
    """Train with the table if a batch is one bag, else with the Cox loss of the batch."""
    torch.manual_seed(given.seed)
    model = Attention()
    opt = torch.optim.AdamW(model.parameters(), lr=given.lr or LR[batch_size])
    criterion = fcco.losses.CoxLoss(times, events)
    for _ in range(epochs):
        loader = DataLoader(Slides(paths), batch_size, shuffle=True, collate_fn=list)
        for batch in loader:
            scores = torch.cat([model(bag) for bag, _ in batch])
            index = torch.tensor([k for _, k in batch])
            if batch_size == 1:
                loss = criterion(scores, index)
            elif events[index].any():
                loss = fcco.objectives.Cox(times[index], events[index]).exact(scores)
            else:
                continue
            opt.zero_grad()
            loss.backward()
            opt.step()
    return model


def error(model):
    """1 - C-index of the test patients."""
    with torch.no_grad():
        scores = torch.cat([model(bag) for bag, _ in Slides(test_paths)])
    return 1 - held_out.metric(scores)


def peak():
    """The most memory that the process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


with tempfile.TemporaryDirectory() as place:
    torch.manual_seed(given.seed)
    paths, times, events = write_slides(Path(place), patients, slice(0, 1200))
    test_paths, *outcomes = write_slides(Path(place), test_patients, slice(1200, 1797))
    held_out = fcco.objectives.Cox(*outcomes)
    print(f"{'untrained':<24} test error {error(train(1, 0)):.3f} (1 - C-index)")
    before, found = peak(), {}
    for batch_size in (1, 8, 32):  # a peak never falls: from the least memory to the most
        found[batch_size] = error(train(batch_size, epochs)), peak() - before
for batch_size in (32, 8, 1):
    name = f"Cox of {batch_size} bags" if batch_size > 1 else "CoxLoss, one bag"
    test_error, memory = found[batch_size]
    print(f"{name + ' per step':<24} test error {test_error:.3f}, training took {memory:.0f} MiB")
