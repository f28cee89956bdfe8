"""Minutes of training with ten million blocks: memory must stay flat, and steps as fast as ever.

    make soak    # twenty minutes

Each positive of a synthetic set is a block of one-way partial AUC. In turn with the optimizer,
losses of every kind are called as users call them, errors and recomputation among it. Every second
we take down the anonymous memory (pages of files can be dropped), open files, threads, and what a
step costs beside the bare network work done in turn with it, both in processor time: on a busy
machine, a clock tells of the others.
"""

import argparse
import contextlib
import copy
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from functools import partial
from itertools import cycle
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import fcco
from fcco_lab.training.checkpoints import Checkpoints

FEATURES, NEGATIVES, BLOCKS, SAMPLES = 8, 100_000, 64, 64
WARM_UP = 300  # steps before we measure: caches fill, and torch imports what it needs


class Run:
    """MSVRM-v2 with gamma by age and Adam-style steps on a small network."""

    def __init__(self, num_blocks, directory):
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(num_blocks + NEGATIVES, FEATURES, generator=generator)
        labels = torch.arange(len(inputs)) < num_blocks
        inputs[:num_blocks] += 0.5
        self.objective = fcco.objectives.PartialAUC(labels, temperature=1.0)
        self.model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 1))
        self.loader = fcco.data.block_loader(
            inputs,
            self.objective,
            blocks_per_step=BLOCKS,
            samples_per_block=SAMPLES,
            num_steps=2**62,
        )
        self.batches = iter(self.loader)
        params, rule = self.model.parameters(), fcco.updates.Adam()
        self.opt = fcco.MSVRM(
            params, self.objective, version=2, lr=1e-3, alpha=0.1, beta=0.1, update=rule
        )
        # Zeros take no memory until they are written: a table that fills would look like a leak.
        for tensor in self.opt.table.buffers():
            tensor.copy_(tensor.clone())
        self.checkpoints = Checkpoints(directory)
        self.steps = 0

    def step(self):
        """Seconds of a step with its draw, and that in units of two bare forwards and backwards."""
        start = time.thread_time()
        closure = partial(self.objective.inner, self.model, next(self.batches))
        self.opt.step(closure)
        middle = time.thread_time()
        for _ in range(2):
            closure().values.sum().backward()
        self.steps += 1
        return middle - start, (middle - start) / (time.thread_time() - middle)

    def save(self):
        parts = {"model": self.model, "opt": self.opt, "loader": self.loader}
        state = {name: part.state_dict() for name, part in parts.items()}
        self.checkpoints.save(state, step=self.steps)


class Losses:
    """Losses of every kind on one network, called one after the other in every way there is."""

    def __init__(self, count=1000):
        self.inputs = torch.randn(count, FEATURES)
        self.labels = torch.arange(count) % 5 == 0
        times, groups = torch.rand(count), torch.arange(count) % 7
        lists = torch.full((count // 10,), 10)
        self.model = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, 4))
        score, losses = self._score, fcco.losses
        self.calls = [
            (losses.CoxLoss(times, self.labels), score),
            (losses.AUCLoss(self.labels), score),
            (losses.APLoss(self.labels), score),
            (losses.NDCGLoss(torch.arange(count) % 3, lists), score),
            (losses.CVaRLoss(count, fraction=0.1), score),
            (losses.ContrastiveLoss(count, temperature=0.2), lambda y, i: (y, y + 0.1, i)),
            (losses.NCALoss(groups), lambda y, i: (y, i)),
            (losses.GroupDROLoss(7, temperature=1.0), lambda y, i: (y[:, 0] ** 2, groups[i])),
            (losses.F1Loss(), lambda y, i: (y[:, 0].sigmoid(), self.labels[i])),
            (losses.CorrelationLoss(), lambda y, i: (y[:, 0], times[i])),
        ]
        params = [p for criterion, _ in self.calls for p in criterion.parameters()]
        self.opt = torch.optim.Adam([*self.model.parameters(), *params], lr=1e-3)
        ways = (self._plainly, self._recomputed, self._twice, self._watched, self._copied)
        self.ways = cycle((*ways, self._wrongly))

    @staticmethod
    def _score(outputs, index):
        return outputs[:, 0], index

    def _loss(self, criterion, arguments, index):
        return criterion(*arguments(self.model(self.inputs[index]), index))

    def _plainly(self, criterion, arguments, index):
        self._loss(criterion, arguments, index).backward()

    def _recomputed(self, *given):
        checkpoint(self._loss, *given, use_reentrant=False).backward()

    def _twice(self, criterion, arguments, index):
        first = self._loss(criterion, arguments, index[:16])
        (first + self._loss(criterion, arguments, index[16:])).backward()

    def _watched(self, criterion, *given):
        criterion.eval()
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # this is not a validation loss
            self._loss(criterion, *given)
        criterion.train()

    def _copied(self, criterion, *given):
        criterion.load_state_dict(copy.deepcopy(criterion).state_dict())
        self._loss(criterion, *given)  # never sent backward

    def _wrongly(self, criterion, arguments, index):
        with contextlib.suppress(FloatingPointError):
            criterion(*arguments(torch.full((len(index), 4), torch.nan), index))

    def step(self):
        """One way of calling each of the losses, and a step of torch's Adam."""
        way = next(self.ways)
        for criterion, arguments in self.calls:
            way(criterion, arguments, torch.randperm(len(self.inputs))[:32])
        self.opt.step()
        self.opt.zero_grad()


def anonymous():
    """Megabytes that only this process holds."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def handles():
    """Open files and threads."""
    return len(os.listdir("/proc/self/fd")) + len(os.listdir("/proc/self/task"))


def observe(run, losses, *, seconds, save_every):
    """(time, memory, handles, step, step beside bare) each second: medians over its steps."""
    samples, times, saved = [], [], 0
    start = shown = time.monotonic()
    while (now := time.monotonic()) - start < seconds:
        times.append(run.step())
        losses.step()
        if now - shown >= 1:
            costs = map(statistics.median, zip(*times, strict=True))
            samples.append((now - start, anonymous(), handles(), *costs))
            shown, times = now, []
        if now - start >= (saved + 1) * save_every:
            run.save()
            saved += 1
    return samples, saved


def slope(xs, ys):
    """Of the least-squares line, with its standard error."""
    fit, spread = statistics.linear_regression(xs, ys), statistics.variance(xs) * (len(xs) - 1)
    rest = sum((y - fit.intercept - fit.slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    return fit.slope, (rest / (len(xs) - 2) / spread) ** 0.5


def summarize(samples):
    times, memory, held, steps, relative = zip(*samples, strict=True)
    tenth = max(1, len(samples) // 10)

    def change(values):
        return statistics.median(values[-tenth:]) / statistics.median(values[:tenth])

    growth, error = slope([seconds / 3600 for seconds in times], memory)
    return {
        "memory": statistics.fmean(memory),
        "megabytes_an_hour": growth,
        "standard_error": error,
        "handles_last_minus_first": held[-1] - held[0],
        "step_ms": 1000 * statistics.median(steps),
        "step_last_to_first": change(steps),
        "step_beside_bare_last_to_first": change(relative),
    }


def faults(found):
    if found["megabytes_an_hour"] > 60:
        yield "memory grows by more than 1 MB a minute"
    if found["handles_last_minus_first"] > 0:
        yield "files or threads are left open"
    if found["step_beside_bare_last_to_first"] > 1.1:
        yield "steps have slowed down by more than 10 %"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--blocks", type=int, default=10**7)
    parser.add_argument("--checkpoint-seconds", type=float, default=60.0)
    parser.add_argument("--output", type=Path, help="write the figures and samples to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        run, losses = Run(given.blocks, Path(directory)), Losses()
        for _ in range(WARM_UP):
            run.step()
            losses.step()
        run.save()
        every = given.checkpoint_seconds
        samples, saved = observe(run, losses, seconds=60 * given.minutes, save_every=every)
    counts = {"blocks": given.blocks, "steps": run.steps, "checkpoints": saved}
    found = {"minutes": given.minutes} | counts | summarize(samples)
    for name, value in found.items():
        print(f"{name:<31} {value:.6g}")
    if given.output is not None:
        given.output.write_text(json.dumps(found | {"samples": samples}) + "\n")
    sys.exit("; ".join(faults(found)) or None)


if __name__ == "__main__":
    main()
