"""The problems of ``batch_one.py``: data, a network, a loss with a table, a test metric."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from fcco import losses, metrics
from fcco_lab.datasets.named import load_classes, load_ranking, load_survival

MOST = 2000
"""Training samples of a9a."""
BOTH = ("valid", "objective")
WIDE = (3e-4, 1e-3, 3e-3, 1e-2)
POSITIVE = 0.05
"""The share of positives that is left of a9a's 24 %."""


@dataclass(frozen=True)
class Part:
    """Samples and what is known of them: (times, events), (labels,) or (grades, lengths)."""

    inputs: Tensor
    known: tuple[Tensor, ...]


@dataclass(frozen=True)
class Problem:
    """Train on ``train``, choose the step size on ``valid``, report ``test``."""

    train: Part
    valid: Part
    test: Part
    network: Callable[[], nn.Module]
    criterion: Callable[..., losses.ScoreLoss]
    metric: Callable[..., float]
    passes: int
    rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    """Step sizes at batch size 1; at B they are sqrt(B) times as large."""
    choose: tuple[str, ...] = ("valid",)
    """What the step size is chosen by: the metric of held-out data, the objective, or each."""

    def report(self, network):
        """The exact training objective, and the metric of the three parts."""
        with torch.no_grad():
            fit = self.criterion(*self.train.known).exact(network(self.train.inputs).double())
            found = {"objective": fit.item()}
            for name in ("train", "valid", "test"):
                part = getattr(self, name)
                found[name] = self.metric(network(part.inputs)[:, 0], *part.known)
        return found

    def optimum(self):
        """The least objective of the network, by L-BFGS in float64; for convex problems."""
        network, x = self.network().double(), self.train.inputs.double()
        criterion = self.criterion(*self.train.known)
        optimizer = torch.optim.LBFGS(
            network.parameters(),
            max_iter=500,
            tolerance_grad=1e-10,
            tolerance_change=1e-14,
            line_search_fn="strong_wolfe",
        )

        def closure():
            optimizer.zero_grad()
            loss = criterion.exact(network(x))
            loss.backward()
            return loss

        optimizer.step(closure)
        return criterion.exact(network(x)).item()


def linear(width):
    def build():
        layer = nn.Linear(width, 1, bias=False)
        nn.init.zeros_(layer.weight)
        return layer

    return build


def perceptron(width):
    return lambda: nn.Sequential(
        nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)
    )


class Attention(nn.Module):
    """A bag's score from its images: attention over hidden features of 32 units."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(64, 32), nn.ReLU())
        self.attention = nn.Sequential(nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 1))
        self.last = nn.Linear(32, 1)

    def forward(self, bags):
        """bags (B, K, 65): 64 pixels, and 1 where there is an image."""
        h = self.hidden(bags[..., :64])
        a = self.attention(h).masked_fill(bags[..., 64:] == 0, -torch.inf).softmax(1)
        return self.last((a * h).sum(1))


def held_out(part, share=0.2):
    """A part without ``share`` of its samples, and these."""
    order = torch.randperm(len(part.inputs), generator=torch.Generator().manual_seed(0))
    cut = int(share * len(order))
    return [
        Part(part.inputs[rows], tuple(known[rows] for known in part.known))
        for rows in (order[cut:], order[:cut])
    ]


def scaled(x, by):
    return (x - by.mean(0)) / by.std(0).clamp(min=1e-6)


def cox(name, passes, deep):
    train, test = load_survival(name)
    parts = [
        Part(scaled(part.inputs, train.inputs), (part.times, part.events)) for part in (train, test)
    ]
    fit, valid = held_out(parts[0]) if deep else (parts[0], parts[1])
    width = fit.inputs.shape[1]
    return Problem(
        fit,
        valid,
        parts[1],
        (perceptron if deep else linear)(width),
        losses.CoxLoss,
        metrics.concordance_index,
        passes,
        rates=(1e-4, 3e-4, 1e-3) if deep else (3e-4, 1e-3, 3e-3),
        choose=("valid",) if deep else ("objective",),
    )


def bags():
    """Bags of 3 to 20 digits; the share of threes sets the hazard; a third is censored."""
    digits = load_digits()
    random = np.random.default_rng(0)
    order = random.permutation(len(digits.target))
    pools = {"train": order[:1200], "valid": order[1200:1400], "test": order[1400:]}
    parts = {}
    for name, count in {"train": 600, "valid": 200, "test": 400}.items():
        pool, x, share = pools[name], torch.zeros(count, 20, 65), np.zeros(count)
        threes, others = (
            pool[(digits.target[pool] == 3) == is_three] for is_three in (True, False)
        )
        for bag in range(count):
            size = random.integers(3, 21)
            some = random.binomial(size, random.uniform(0, 0.7))
            chosen = np.concatenate(
                [random.choice(threes, some), random.choice(others, size - some)]
            )
            x[bag, :size, :64] = torch.from_numpy(
                digits.data[random.permutation(chosen)] / 16
            ).float()
            x[bag, :size, 64], share[bag] = 1, some / size
        time = random.exponential(np.exp(-5 * share))
        censored = random.exponential(0.6, count)
        known = torch.from_numpy(np.minimum(time, censored)), torch.from_numpy(time <= censored)
        parts[name] = Part(x, known)
    return Problem(*parts.values(), Attention, losses.CoxLoss, metrics.concordance_index, 10)


def rare(part, most):
    """Samples of a9a with few positives, at most so many."""
    positive, negative = ((part.classes == label).nonzero()[:, 0] for label in (1, 0))
    size = min(most, int(len(negative) / (1 - POSITIVE)))
    few = int(POSITIVE * size)
    rows = torch.cat([positive[:few], negative[: size - few]])
    return Part(part.inputs[rows].float(), (part.classes[rows].long(),))


def a9a():
    train, test = load_classes("a9a")
    later = replace(train, inputs=train.inputs[16000:], classes=train.classes[16000:])
    parts = rare(train, MOST), rare(later, MOST), rare(test, len(test.classes))
    return (*parts, linear(parts[0].inputs.shape[1]))


def area(scores, labels):
    return metrics.macro_auroc(scores, labels.bool())


def precision(scores, labels):
    return metrics.macro_average_precision(scores, labels.bool())


def ndcg():
    train, test = load_ranking("lgb_lambdarank")
    parts = [
        Part(scaled(part.inputs, train.inputs), (part.grades, part.lengths))
        for part in (train, test)
    ]
    width = parts[0].inputs.shape[1]
    return Problem(
        parts[0],
        parts[1],
        parts[1],
        linear(width),
        losses.NDCGLoss,
        lambda scores, grades, lengths: metrics.ndcg(scores, grades, lengths, k=10),
        3,
        rates=(1e-4, 3e-4, 1e-3),
        choose=("objective",),
    )


PROBLEMS = {
    "cox gbsg": lambda: cox("gbsg", 5, deep=False),
    "cox metabric": lambda: cox("metabric", 5, deep=False),
    "cox support": lambda: cox("support", 5, deep=False),
    "deep cox metabric": lambda: cox("metabric", 6, deep=True),
    "deep cox support": lambda: cox("support", 2, deep=True),
    "bags of digits": bags,
    "ap a9a": lambda: Problem(*a9a(), losses.APLoss, precision, 3, WIDE, BOTH),
    "auc a9a": lambda: Problem(*a9a(), losses.AUCLoss, area, 3, WIDE, BOTH),
    "ndcg": ndcg,
}


@cache
def problem(name):
    return PROBLEMS[name]()
