"""The data of ``contrastive_batches.py``: images in two views, names and sentences."""

import importlib
import inspect
import re
from zlib import crc32

import torch
from torch import nn
from torch.nn.functional import normalize

from fcco_lab.datasets import load_classes


class Images:
    """Two random shifts of an image with noise; nearest neighbours find the class."""

    rate = 1e-3
    """Where the search for a step size begins."""

    def __init__(self, name, directory, size=256):
        train, test = load_classes(name, directory)
        self.x = train.inputs[:size].float().flatten(1)
        self.side = int(self.x.shape[1] ** 0.5)
        self.classes = train.classes[:size]
        self.test, self.test_classes = test.inputs[:2000].float().flatten(1), test.classes[:2000]
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

    rate = 3e-2
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
        self.size = 256
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
