"""Every score loss with its options on small data, and its definition as plain loops."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from fcco import losses as L
from fcco import objectives as O


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def hinge(s):
    return max(1 + s, 0) ** 2


def logistic(s):
    return math.log2(1 + math.exp(s))


def mean(numbers):
    numbers = list(numbers)
    return sum(numbers) / len(numbers)


@dataclass
class Case:
    """A criterion, what it is built from (sample by sample), and F as loops over a (N, T) list."""

    name: str
    build: Callable[..., L.ScoreLoss]
    given: tuple[torch.Tensor, ...]
    brute: Callable[..., float]
    tasks: int = 1
    lists: bool = False

    def __str__(self):
        return self.name

    @property
    def size(self):
        return len(self.given[0])

    def criterion(self, rows=None):
        """Of all samples, or of some, which then keep their order; in float64."""
        if rows is None:
            return self.build(*self.given).double()
        if not self.lists:
            return self.build(*(part[rows] for part in self.given)).double()
        grades, lengths = self.given
        owner = torch.arange(len(lengths)).repeat_interleave(lengths)[rows]
        return self.build(grades[rows], owner.bincount()[owner.bincount() > 0]).double()

    def value(self, scores):
        return self.brute(scores.view(self.size, self.tasks).tolist(), *self.given)

    def scores(self, seed=0, scale=1.0):
        shape = (self.size, self.tasks) if self.tasks > 1 else (self.size,)
        return torch.randn(shape, generator=generator(seed), dtype=torch.float64) * scale


def cox(ties):
    def brute(h, times, events):
        h, t = [row[0] for row in h], times.tolist()
        costs, met = [], {}
        for i in range(len(h)):
            if not events[i]:
                continue
            risk = sum(math.exp(h[j]) for j in range(len(h)) if t[j] >= t[i])
            dead = [j for j in range(len(h)) if t[j] == t[i] and events[j]]
            place = met.setdefault(t[i], 0)
            met[t[i]] += 1
            if ties == "efron":
                risk -= place / len(dead) * sum(math.exp(h[j]) for j in dead)
            costs.append(math.log(risk) - h[i])
        return mean(costs)

    return brute


def by_task(of_one):
    """The mean over the tasks with both classes of ``of_one(positive scores, negative scores)``."""

    def brute(h, labels):
        labels = labels.view(len(labels), -1)
        values = []
        for task in range(labels.shape[1]):
            sides = [
                [row[task] for row, y in zip(h, labels[:, task].tolist(), strict=True) if y == side]
                for side in (1, 0)
            ]
            if all(sides):
                values.append(of_one(*sides))
        return mean(values)

    return brute


def auc(temperature):
    def of_one(p, n):
        pairs = mean(math.exp((b - a) / temperature) for a in p for b in n)
        return temperature * math.log(1 + pairs)

    return by_task(of_one)


def precision(p, n):
    def rank(own, others):
        return 1 + sum(hinge(other - own) for other in others)

    return -mean(
        rank(a, p[:i] + p[i + 1 :]) / rank(a, p[:i] + p[i + 1 :] + n) for i, a in enumerate(p)
    )


def partial(lam, lam_1=None):
    def of_one(p, n):
        rows = [mean(math.exp(hinge(b - a) / lam) for b in n) for a in p]
        if lam_1 is None:
            return mean(lam * math.log(u) for u in rows)
        return mean(_capped(lam / lam_1 * math.log(u)) for u in rows)

    return by_task(of_one)


def _capped(x):
    return math.exp(min(x, 20)) * (1 + max(x - 20, 0))


def sensitive(lam):
    def of_one(p, n):
        return mean(lam * math.log(mean(math.exp(hinge(b - a) / lam) for a in p)) for b in n)

    return by_task(of_one)


def dro(temperature):
    def brute(h, everyone):
        return temperature * math.log(mean(math.exp(row[0] / temperature) for row in h))

    return brute


def cvar(fraction):
    def brute(h, everyone):
        left, total = fraction * len(h), 0.0
        for loss in sorted((row[0] for row in h), reverse=True):
            total, left = total + min(1.0, max(left, 0.0)) * loss, left - 1
        return total / (fraction * len(h))

    return brute


def push(power):
    return by_task(lambda p, n: mean(mean(logistic(b - a) for a in p) ** power for b in n))


def by_list(h, grades, lengths):
    start = 0
    for length in lengths.tolist():
        part = slice(start, start + length)
        yield [row[0] for row in h[part]], grades[part].tolist()
        start += length


def ndcg(top_k):
    def brute(h, grades, lengths):
        values = []
        for scores, y in by_list(h, grades, lengths):
            gains = [2**grade - 1 for grade in y]
            best = sorted(gains, reverse=True)[:top_k]
            ideal = sum(gain / math.log2(2 + i) for i, gain in enumerate(best))
            if not ideal:
                continue
            total = 0.0
            for i, gain in enumerate(gains):
                rank = 1 + sum(hinge(s - scores[i]) for j, s in enumerate(scores) if j != i)
                cut = 1.0 if top_k is None else 1 / (1 + math.exp((rank - top_k - 0.5) / 0.5))
                total += gain * cut / math.log2(1 + rank)
            values.append(-total / ideal)
        return mean(values)

    return brute


def list_net(h, grades, lengths):
    costs = []
    for scores, y in by_list(h, grades, lengths):
        total, target = sum(map(math.exp, scores)), sum(map(math.exp, y))
        parts = zip(scores, y, strict=True)
        costs.append(sum(-math.exp(g) / target * math.log(math.exp(s) / total) for s, g in parts))
    return mean(costs)


def survival(count=45, distinct=9):
    times = torch.randint(1, distinct, (count,), generator=generator(1)).double()
    return times, torch.rand(count, generator=generator(2)) < 0.6


def labels(tasks=None):
    if tasks is None:
        return (torch.rand(45, generator=generator(3)) < 0.4).long()
    drawn = torch.randint(-1, 2, (45, tasks), generator=generator(4)).double()
    drawn[drawn[:, 0] < 0, 0] = torch.nan
    drawn[:, -1] = 1  # a task without negatives
    return drawn


def ranking():
    lengths = torch.tensor([9, 1, 16, 7, 12])
    grades = torch.randint(0, 4, (45,), generator=generator(5))
    grades[26:33] = 0  # a list without relevant items
    return grades, lengths


def _cases():
    for ties in ("efron", "breslow"):
        make = functools.partial(L.CoxLoss, ties=ties)
        yield Case(f"cox {ties}", make, survival(), cox(ties))
        yield Case(f"cox {ties}, distinct times", make, survival(45, 10**6), cox(ties))
    kinds = {
        "auc": (L.AUCLoss, auc(1.0)),
        "auc, T=0.3": (lambda y: L.AUCLoss(y, temperature=0.3), auc(0.3)),
        "ap": (lambda y: L.APLoss(y, surrogate=O.SquaredHinge()), by_task(precision)),
        "pauc": (lambda y: L.PartialAUCLoss(y, temperature=0.2), partial(0.2)),
        "pauc, steep": (lambda y: L.PartialAUCLoss(y, temperature=0.05), partial(0.05)),
        "tpauc": (lambda y: L.PartialAUCLoss(y, temperature=1.0, two_way=2.0), partial(1.0, 2.0)),
        "push": (L.PushLoss, push(4.0)),
        "push, p=2": (lambda y: L.PushLoss(y, power=2.0), push(2.0)),
    }
    for name, (build, brute) in kinds.items():
        yield Case(name, build, (labels(),), brute)
        yield Case(f"{name}, 3 tasks", build, (labels(3),), brute, tasks=3)
    for name, build, brute in (
        ("ndcg", L.NDCGLoss, ndcg(None)),
        ("ndcg at 3", lambda g, n: L.NDCGLoss(g, n, top_k=3), ndcg(3)),
        ("listnet", L.ListNetLoss, list_net),
    ):
        yield Case(name, build, ranking(), brute, lists=True)

    yield Case("pauc, sensitive", lambda y: L.PartialAUCLoss(y, temperature=0.2, min_tpr=0.8),
               (labels(),), sensitive(0.2))  # fmt: skip
    yield Case("pauc, sensitive, 3 tasks",
               lambda y: L.PartialAUCLoss(y, temperature=0.2, min_tpr=0.8),
               (labels(3),), sensitive(0.2), tasks=3)  # fmt: skip
    everyone = (torch.arange(45),)
    yield Case("dro", lambda i: L.DROLoss(len(i), temperature=0.3), everyone, dro(0.3))
    yield Case("cvar", lambda i: L.CVaRLoss(len(i), fraction=0.3), everyone, cvar(0.3))


CASES = list(_cases())
SURROGATES = [O.Logistic(), O.Sigmoid(0.5), O.SquaredHinge(0.3), O.Exponential()]
