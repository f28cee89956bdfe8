"""Contrastive learning with batches of 8, 16, 32 and 64 pairs, at equal work.

    python benchmarks/contrastive_batches.py --data-dir DIR --output FILE.jsonl

In-batch InfoNCE; a queue of embeddings by a slow copy of the network (MoCo, both ways); GradCache
(batches of 128 in parts, whose size does not matter to the result); and a table of rows. Work is
pairs forward + 2 x pairs backward: every method gets that of 40 passes of the in-batch loss, so
that queue and GradCache, which pass every pair forward twice, make 30. Step sizes are tried on a
seed of their own, three and then further ones while the best is at an end; the best (by the
objective) runs on five seeds more. Lines are appended; the same command goes on where it was
stopped.
"""

import argparse
import json
from copy import deepcopy
from itertools import product
from pathlib import Path

import torch
from contrastive_data import Docstrings, Images
from torch.nn.functional import cross_entropy, normalize

from fcco.losses import ContrastiveLoss

PASSES, TEMPERATURE, QUEUE, LARGE, MOMENTUM = 40, 0.1, 192, 128, 0.99
BATCHES, RATES, SEEDS, TUNING_SEED = (
    (8, 16, 32, 64),
    (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1),
    5,
    100,
)
METHODS = ("in-batch", "queue", "table")


def info_nce(first, second):
    """The in-batch loss, both ways."""
    a, b = normalize(first, dim=1), normalize(second, dim=1)
    s, own = a @ b.T / TEMPERATURE, torch.arange(len(a))
    return TEMPERATURE * (cross_entropy(s, own) + cross_entropy(s.T, own)) / 2


class Queue:
    """The last 192 pairs of embeddings as further negatives, but never a sample's own."""

    def __init__(self, width=32):
        self.pairs, self.index = torch.zeros(2, 0, width), torch.zeros(0, dtype=torch.long)

    def loss(self, first, second, keys, index):
        """InfoNCE of both ways, against ``keys`` (normalized pairs) and what is in the queue."""
        total, own = 0.0, torch.arange(len(index))
        apart = torch.zeros(len(index), len(index), dtype=torch.bool)
        self_made = torch.cat([apart, index.unsqueeze(1) == self.index], dim=1)
        for x, key, old in ((first, keys[1], self.pairs[1]), (second, keys[0], self.pairs[0])):
            s = normalize(x, dim=1) @ torch.cat([key, old]).T / TEMPERATURE
            total = total + cross_entropy(s.masked_fill(self_made, -torch.inf), own) / 2
        self.pairs = torch.cat([keys, self.pairs], dim=1)[:, :QUEUE]
        self.index = torch.cat([index, self.index])[:QUEUE]
        return TEMPERATURE * total


def cached(network, first, second, part=64):
    """GradCache: the gradient of a large batch in parts; embeddings first, then each part again."""
    with torch.no_grad():
        a, b = (torch.cat([network(p) for p in x.split(part)]) for x in (first, second))
    a.requires_grad_()
    b.requires_grad_()
    slopes = torch.autograd.grad(info_nce(a, b), (a, b))
    for x, slope in zip((first, second), slopes, strict=True):
        for piece, pull in zip(x.split(part), slope.split(part), strict=True):
            network(piece).backward(pull)


def losses(how, network, size):
    """What one step does with (first views, second views, index): a backward pass."""
    criterion, queue, slow = (
        ContrastiveLoss(size, temperature=TEMPERATURE),
        Queue(),
        deepcopy(network),
    )

    def queued(first, second, index):
        with torch.no_grad():
            for p, q in zip(slow.parameters(), network.parameters(), strict=True):
                p.lerp_(q, 1 - MOMENTUM)
            keys = torch.stack([normalize(slow(x), dim=1) for x in (first, second)])
        queue.loss(network(first), network(second), keys, index).backward()

    return {
        "in-batch": lambda x, y, index: info_nce(network(x), network(y)).backward(),
        "queue": queued,
        "GradCache": lambda x, y, index: cached(network, x, y),
        "table": lambda x, y, index: criterion(network(x), network(y), index).backward(),
    }[how]


def train(data, how, batch, lr, seed):
    torch.manual_seed(seed)
    network = data.network()
    optimizer = torch.optim.AdamW(network.parameters(), lr, fused=True)
    passes = PASSES * 3 // 4 if how in ("GradCache", "queue") else PASSES
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, passes * (data.size // batch))
    backward = losses(how, network, data.size)
    for _ in range(passes):
        for index in torch.randperm(data.size).split(batch):
            optimizer.zero_grad()
            backward(*data.views(index), index)
            optimizer.step()
            schedule.step()
    network.eval()
    with torch.no_grad():
        return {"objective": objective(data, network), "metric": data.metric(network)}


def objective(data, network):
    """The global contrastive risk of the training set, at two fixed views of each sample."""
    state = torch.get_rng_state()
    torch.manual_seed(7)
    with torch.no_grad():
        a, b = (normalize(network(view), dim=1) for view in data.views(torch.arange(data.size)))
    torch.set_rng_state(state)
    s = (a @ b.T) / TEMPERATURE
    own = s.diagonal()
    empty = torch.eye(data.size, dtype=torch.bool)
    two = [(part.masked_fill(empty, -torch.inf).logsumexp(1) - own).mean() for part in (s, s.T)]
    return TEMPERATURE * (sum(two).item() / 2 - torch.tensor(data.size - 1.0).log().item())


def summary(records):
    """A table of the runs that follow the tuning: mean and standard deviation over seeds."""
    groups = {}
    for record in records:
        if record["seed"] != TUNING_SEED:
            key = record["data"], record["batch"], record["method"], record["lr"]
            groups.setdefault(key, []).append(record)
    lines = [
        "| data | B | method | step size | objective | metric | seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for (data, batch, how, lr), found in groups.items():
        cells = [
            f"{x.mean():.{digits}f} ± {x.std():.{digits}f}"
            for key, digits in (("objective", 4), ("metric", 3))
            for x in [torch.tensor([record[key] for record in found])]
        ]
        lines.append(f"| {data} | {batch} | {how} | {lr} | {' | '.join(cells)} | {len(found)} |")
    return "\n".join(lines) + "\n"


def tuned(run, how, batch, first):
    """The step size of the lowest objective, not at an end of those that were tried."""
    middle = RATES.index(first)
    tried = dict.fromkeys([middle - 1, middle, middle + 1])
    while True:
        for k in tried:
            tried[k] = run(how, batch, RATES[k], TUNING_SEED)["objective"]
        best = min(tried, key=tried.get)
        more = {best - 1, best + 1} & set(range(len(RATES))) - tried.keys()
        if not more:
            return RATES[best]
        tried |= dict.fromkeys(more)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--data", nargs="+", default=["usps", "docstrings", "fashion_mnist"])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--summary", type=Path, help="write only a table of what is there")
    options = parser.parse_args()
    if options.summary is not None:
        records = map(json.loads, options.output.read_text().splitlines())
        options.summary.write_text(summary(records))
        return
    torch.set_num_threads(1)
    keys = ("data", "method", "batch", "lr", "seed")
    done = {}
    if options.output.exists():
        lines = map(json.loads, options.output.read_text().splitlines())
        done = {tuple(line[key] for key in keys): line for line in lines}

    def run(name, data, *case):
        key = (name, *case)
        if key not in done:
            done[key] = dict(zip(keys, key, strict=True)) | train(data, *case)
            print(json.dumps(done[key]), flush=True)
            with options.output.open("a") as file:
                file.write(json.dumps(done[key]) + "\n")
        return done[key]

    for name in options.data:
        data = Docstrings() if name == "docstrings" else Images(name, options.data_dir)
        for batch, how in [*product(BATCHES, METHODS), (LARGE, "GradCache")]:
            best = tuned(lambda *case: run(name, data, *case), how, batch, data.rate)  # noqa: B023
            for seed in range(SEEDS):
                run(name, data, how, batch, best, seed)


if __name__ == "__main__":
    main()
