"""Survival from bags on disk, one bag per step, as with whole-slide images that fill the memory.

A bag is a file with the features of some thousand patches (here: handwritten digits, of which the
eights raise the hazard); attention pooling gives one log risk per bag. The Cox loss of a batch
needs all its bags in memory at once and has no gradient at batch size 1. CoxLoss remembers the last
score of every patient: one bag per step is compared with all patients.

For slides of your own, write one file per slide and change `Slides.__getitem__`.

pip install fcco[sklearn]
python examples/loss_bags.py [--quick] [--seed SEED]
"""

import argparse
import math
import os
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, Dataset

import fcco

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or the profiler reports its starts
parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true")
parser.add_argument("--seed", type=int, default=0)
given = parser.parse_args()
patients, largest, epochs = (150, 100, 6) if given.quick else (240, 3000, 10)
LR = {1: 6e-4, 8: 3e-3, 32: 3e-3}  # the best of a grid for each batch size


def write_slides(directory, count, pool):
    """Write the bags of some patients, one file each; return files, times and events."""
    images, digit = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images, digit = images[pool].float() / 16, digit[pool]
    # Every patient has digits in proportions of their own.
    shares = torch.distributions.Dirichlet(torch.ones(10)).sample((count,))
    paths = [directory / f"{pool.start}-{k}.pt" for k in range(count)]
    for path, share in zip(paths, shares, strict=True):
        size = int(torch.randint(largest // 4, largest, (1,)))  # bags cannot be stacked
        wanted = (share / digit.bincount())[digit]
        torch.save(images[torch.multinomial(wanted, size, replacement=True)], path)
    times = (-15 * shares[:, 8]).exp() * torch.empty(count).uniform_(0.5, 1.5)
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


def new_training(batch_size):
    """Return a model, and a step that trains it with some bags and their indices."""
    torch.manual_seed(given.seed)
    model = Attention()
    opt = torch.optim.AdamW(model.parameters(), lr=LR[batch_size])
    total = epochs * math.ceil(patients / batch_size)
    decay = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.0, total)
    criterion = fcco.losses.CoxLoss(times, events)

    def step(batch):
        scores = torch.cat([model(bag) for bag, _ in batch])
        index = torch.tensor([k for _, k in batch])
        if batch_size == 1:  # compared with all patients
            loss = criterion(scores, index)
        elif events[index].any():  # compared with one another
            loss = fcco.objectives.Cox(times[index], events[index]).exact(scores)
        else:
            return
        opt.zero_grad()
        loss.backward()
        opt.step()
        decay.step()

    return model, step


def train(batch_size):
    model, step = new_training(batch_size)
    for _ in range(epochs):
        for batch in DataLoader(Slides(paths), batch_size, shuffle=True, collate_fn=list):
            step(batch)
    return model


def error(model):
    """1 - C-index of the test patients."""
    with torch.no_grad():
        scores = torch.cat([model(bag) for bag, _ in Slides(test_paths)])
    return 1 - held_out.metric(scores)


def peak_memory(batch_size):
    """The most that a step holds at a time, its bags among it, in MiB."""
    _, step = new_training(batch_size)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step([Slides(paths)[k] for k in range(batch_size)])
    events = sorted(record.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    changes = torch.tensor([event.nbytes() for event in events if event.name() == "[memory]"])
    return changes.cumsum(0).max().item() / 2**20


with tempfile.TemporaryDirectory() as place:
    torch.manual_seed(given.seed)
    paths, times, events = write_slides(Path(place), patients, slice(0, 1200))
    test_paths, *outcomes = write_slides(Path(place), patients, slice(1200, 1797))
    held_out = fcco.objectives.Cox(*outcomes)
    print(f"{'untrained':<26} test error {error(new_training(1)[0]):.3f} (1 - C-index)")
    for batch_size in (32, 8, 1):
        name = f"Cox of {batch_size} bags" if batch_size > 1 else "CoxLoss, one bag"
        numbers = f"{error(train(batch_size)):.3f}, peak memory {peak_memory(batch_size):.1f} MiB"
        print(f"{name + ' per step':<26} test error {numbers}")
