"""Contrastive learning with batches of 8, 16, 32 and 64 pairs, at equal work.

    python benchmarks/contrastive_batches.py --data-dir DIR --output FILE.jsonl

In-batch InfoNCE, a queue of earlier embeddings, GradCache (batches of 256 in parts), and a table of
rows. Work is pairs forward + 2 x pairs backward: every method gets that of 30 passes of the
in-batch loss, so that GradCache, which passes everything forward twice, makes 22. Three step sizes
are tried on a seed of their own, the best one (by the objective) runs on five more. Lines are
appended; the same command goes on where it was stopped.
"""

import argparse
import importlib
import inspect
import json
import re
from itertools import product
from pathlib import Path
from zlib import crc32

import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

from fcco.losses import ContrastiveLoss
from fcco_lab.datasets import load_classes

PASSES, TEMPERATURE, QUEUE, LARGE = 30, 0.1, 512, 256
BATCHES, RATES, SEEDS, TUNING_SEED = (8, 16, 32, 64), (3e-4, 1e-3, 3e-3), 5, 100
METHODS = ("in-batch", "queue", "GradCache", "table")


class Images:
    """Two random shifts of an image with noise; nearest neighbours find the class."""

    def __init__(self, name, directory, size=1000):
        train, test = load_classes(name, directory)
        self.x = train.inputs[:size].float().flatten(1)
        self.side = int(self.x.shape[1] ** 0.5)
        self.classes = train.classes[:size]
        self.test, self.test_classes = (
            test.inputs[:size].float().flatten(1),
            test.classes[:size],
        )
        self.size = len(self.x)

    def network(self):
        return nn.Sequential(nn.Linear(self.x.shape[1], 128), nn.ReLU(), nn.Linear(128, 32))

    def views(self, index):
        return self._view(index), self._view(index)

    def _view(self, index):
        side, images = self.side, self.x[index].view(-1, self.side, self.side)
        shift = torch.randint(-2, 3, (2, len(index), 1))
        rows, columns = (torch.arange(side) + shift[k] for k in (0, 1))
        moved = images[
            torch.arange(len(index)).view(-1, 1, 1),
            (rows % side).unsqueeze(2),
            (columns % side).unsqueeze(1),
        ]
        return moved.flatten(1) + 0.1 * torch.randn(len(index), side * side)

    def metric(self, network):
        """Accuracy of the nearest of five training images."""
        a, b = (normalize(network(part), dim=1) for part in (self.test, self.x))
        votes = self.classes[(a @ b.T).topk(5).indices]
        return (votes.mode(1).values == self.test_classes).float().mean().item()


class Docstrings:
    """Names of functions and the first sentences of their docstrings, from installed packages."""

    PACKAGES = ("torch", "torch.nn.functional", "numpy", "numpy.linalg", "scipy.stats",
                "scipy.signal", "scipy.special", "scipy.linalg", "sklearn.metrics",
                "sklearn.preprocessing", "statistics", "math", "itertools", "os", "re",
                "matplotlib.pyplot", "torch.Tensor", "numpy.ndarray", "pandas.DataFrame",
                "scipy.optimize", "scipy.sparse", "sklearn.utils", "networkx")  # fmt: skip
    WORDS = 4096

    def __init__(self):
        pairs = {}
        for package in self.PACKAGES:
            for name, sentence in _documented(package):
                pairs.setdefault(sentence, name)
        chosen = sorted(pairs.items(), key=lambda pair: crc32(pair[0].encode()))[:2000]
        first = [self._tokens(name) for _, name in chosen]
        second = [self._tokens(sentence) for sentence, _ in chosen]
        self.size = len(chosen) * 3 // 4
        self.parts = [_padded(first), _padded(second)]

    def _tokens(self, text):
        """Hashed trigrams of the letters, so that a name and a sentence can share them."""
        text = " ".join(re.findall(r"[a-z]+", text.lower().replace("_", " ")))
        grams = [text[k : k + 3] for k in range(len(text) - 2)] or [text]
        return [1 + crc32(gram.encode()) % (self.WORDS - 1) for gram in grams][:60]

    def network(self):
        return nn.Sequential(nn.EmbeddingBag(self.WORDS, 64, padding_idx=0), nn.Linear(64, 32))

    def views(self, index):
        return tuple(part[index] for part in self.parts)

    def metric(self, network):
        """How often the sentence nearest to a held-out name is its own."""
        a, b = (normalize(network(part[self.size :]), dim=1) for part in self.parts)
        return ((a @ b.T).argmax(1) == torch.arange(len(a))).float().mean().item()


def _documented(package):
    """(name, first sentence) of what a module or class documents."""
    try:
        module = importlib.import_module(package)
    except ImportError:
        parent, _, name = package.rpartition(".")
        module = getattr(importlib.import_module(parent), name)
    for name in dir(module):
        thing = getattr(module, name, None)
        if name.startswith("_") or not callable(thing):
            continue
        text = getattr(thing, "__doc__", None)
        text = inspect.cleandoc(text) if isinstance(text, str) else ""
        lines = [line for line in text.split("\n\n") if "(" not in line.split(" ")[0]]
        sentence = " ".join(lines[0].split()).partition(". ")[0] if lines else ""
        if 20 < len(sentence) < 200:
            yield name, sentence


def _padded(rows):
    width = max(map(len, rows))
    return torch.tensor([row + [0] * (width - len(row)) for row in rows])


def info_nce(first, second, more=None):
    """The in-batch loss, both ways; with ``more`` embeddings that are not trained."""
    a, b = normalize(first, dim=1), normalize(second, dim=1)
    own, total = torch.arange(len(a)), 0.0
    for x, y, others in ((a, b, 1), (b, a, 0)):
        partners = y if more is None else torch.cat([y, more[others]])
        total = total + cross_entropy(x @ partners.T / TEMPERATURE, own) / 2
    return TEMPERATURE * total


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


def train(data, how, batch, lr, seed):
    torch.manual_seed(seed)
    network = data.network()
    optimizer = torch.optim.AdamW(network.parameters(), lr)
    passes = PASSES * 3 // 4 if how == "GradCache" else PASSES
    size = LARGE if how == "GradCache" else batch
    steps = passes * (data.size // size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    criterion = ContrastiveLoss(data.size, temperature=TEMPERATURE)
    queue = None
    for _ in range(passes):
        for index in torch.randperm(data.size)[: data.size // size * size].split(size):
            first, second = data.views(index)
            optimizer.zero_grad()
            if how == "GradCache":
                cached(network, first, second, batch)
            elif how == "table":
                criterion(network(first), network(second), index).backward()
            else:
                a, b = network(first), network(second)
                info_nce(a, b, queue if how == "queue" else None).backward()
                new = torch.stack([normalize(x.detach(), dim=1) for x in (a, b)])
                queue = new if queue is None else torch.cat([new, queue], dim=1)[:, :QUEUE]
            optimizer.step()
            schedule.step()
    network.eval()
    with torch.no_grad():
        return {"objective": objective(data, network), "metric": data.metric(network)}


def cached(network, first, second, batch):
    """The gradient of one large batch, in parts: embeddings first, then each part again."""
    with torch.no_grad():
        a, b = (torch.cat([network(p) for p in x.split(batch)]) for x in (first, second))
    a.requires_grad_()
    b.requires_grad_()
    slopes = torch.autograd.grad(info_nce(a, b), (a, b))
    for x, slope in zip((first, second), slopes, strict=True):
        for part, pull in zip(x.split(batch), slope.split(batch), strict=True):
            network(part).backward(pull)


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--summary", type=Path, help="write only a table of what is there")
    options = parser.parse_args()
    if options.summary is not None:
        records = map(json.loads, options.output.read_text().splitlines())
        options.summary.write_text(summary(records))
        return
    torch.set_num_threads(1)
    makers = {
        "usps": lambda: Images("usps", options.data_dir),
        "docstrings": Docstrings,
        "fashion_mnist": lambda: Images("fashion_mnist", options.data_dir),
    }
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

    for name, make in makers.items():
        data = make()
        for batch, how in product(BATCHES, METHODS):
            tried = [run(name, data, how, batch, lr, TUNING_SEED) for lr in RATES]
            best = min(tried, key=lambda record: record["objective"])["lr"]
            for seed in range(SEEDS):
                run(name, data, how, batch, best, seed)


if __name__ == "__main__":
    main()
