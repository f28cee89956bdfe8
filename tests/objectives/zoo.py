"""Every objective on a tiny data set, beside its definition written as plain loops."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from fcco import objectives as O

N = 9
GENERATOR = torch.Generator().manual_seed(5)
X = torch.randn((N, 3), generator=GENERATOR, dtype=torch.float64)
Y = torch.tensor([0, 1, 0, 0, 1, 0, 1, 0, 0])
CLASSES = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0, 1])
TIMES = torch.tensor([3.0, 1.0, 2.0, 2.0, 5.0, 2.0, 4.0, 1.0, 2.0])
EVENTS = torch.tensor([1, 1, 1, 0, 0, 1, 1, 0, 1]).bool()
GRADES = torch.tensor([0, 2, 1, 0, 0, 3, 0, 1, 1])
LENGTHS = torch.tensor([4, 2, 3])
GROUPS = torch.tensor([0, 1, 2, 0, 1, 1, 2, 0, 0])
TARGETS = torch.tensor([0, 1, 1, 0, 1, 0, 1, 1, 0])
BAG_LABELS = torch.tensor([1, 0, 1])
Z = torch.randn((N, 3), generator=GENERATOR, dtype=torch.float64)
MANY = torch.stack([Y == 1, CLASSES == 1], dim=1)
KNOWN = torch.rand((N, 2), generator=GENERATOR) < 0.8


@dataclass
class Case:
    """An objective, its inputs, how many outputs the model has, and the truth."""

    name: str
    objective: object
    inputs: object
    outputs: int
    truth: Callable  # outputs of the model, as nested lists of floats, to F
    samples: int = 2

    def model(self, seed=0):
        torch.manual_seed(seed)
        return nn.Linear(3, self.outputs).double()


def hinge(s):
    return max(1 + s, 0.0) ** 2


def sigmoid(s):
    return 1 / (1 + math.exp(-s))


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def auc(h, positive, negative, margin=1.0):
    total = []
    for task in range(positive.shape[1]):
        p = [sigmoid(h[i][task]) for i in range(N) if positive[i, task]]
        n = [sigmoid(h[i][task]) for i in range(N) if negative[i, task]]
        spread = mean((v - mean(p)) ** 2 for v in p) + mean((v - mean(n)) ** 2 for v in n)
        total.append(spread + max(margin + mean(n) - mean(p), 0.0) ** 2 / 2)
    return mean(total)


def exponential_auc(h, positive, negative, temperature):
    total = []
    for task in range(positive.shape[1]):
        p = [h[i][task] for i in range(N) if positive[i, task]]
        n = [h[i][task] for i in range(N) if negative[i, task]]
        pairs = mean(math.exp((b - a) / temperature) for a in p for b in n)
        total.append(temperature * math.log(1 + pairs))
    return mean(total)


def gap(h, surrogate):
    return mean(
        surrogate(
            mean(
                sigmoid(h[j][task]) - sigmoid(h[i][task])
                for i in range(N)
                if CLASSES[i] == task
                for j in range(N)
                if CLASSES[j] != task
            )
        )
        for task in range(3)
    )


def average_precision(h, labels):
    result = []
    for task in range(labels.shape[1]):
        positives = [i for i in range(N) if labels[i, task]]
        result.append(
            mean(
                sum(hinge(h[j][task] - h[i][task]) for j in positives)
                / sum(hinge(h[j][task] - h[i][task]) for j in range(N))
                for i in positives
            )
        )
    return -mean(result)


def pairs(h, phi, outer):
    """Over positives, the outer function of the mean over negatives."""
    return mean(
        outer(mean(phi(h[j][0] - h[i][0]) for j in range(N) if not Y[j])) for i in range(N) if Y[i]
    )


def push(h, power):
    def logistic(s):
        return math.log2(1 + math.exp(s))

    return mean(
        mean(logistic(h[i][0] - h[j][0]) for j in range(N) if Y[j]) ** power
        for i in range(N)
        if not Y[i]
    )


def breslow(h):
    return mean(
        math.log(sum(math.exp(h[j][0]) for j in range(N) if TIMES[j] >= TIMES[i])) - h[i][0]
        for i in range(N)
        if EVENTS[i]
    )


def efron(h):
    total = 0.0
    for time in sorted(set(TIMES.tolist())):
        dead = [i for i in range(N) if EVENTS[i] and TIMES[i] == time]
        risk = sum(math.exp(h[j][0]) for j in range(N) if TIMES[j] >= time)
        tied = sum(math.exp(h[j][0]) for j in dead)
        for place, i in enumerate(dead):
            total += math.log(risk - place / len(dead) * tied) - h[i][0]
    return total / int(EVENTS.sum())


def lists():
    start = 0
    for length in LENGTHS.tolist():
        yield range(start, start + length)
        start += length


def list_net(h, importance=None):
    total = []
    for items in lists():
        weight = [math.exp(float(GRADES[i])) for i in items]
        score = [math.exp(h[i][0]) for i in items]
        total.append(
            -sum(
                w / sum(weight) * math.log(s / sum(score))
                for w, s in zip(weight, score, strict=True)
            )
        )
    return weighted(total, importance)


def weighted(values, importance):
    importance = importance or [1.0] * len(values)
    total = sum(w * value for w, value in zip(importance, values, strict=True))
    return total / sum(importance)


def ndcg(h, k=None, softness=0.5, importance=None):
    total = []
    for items in lists():
        gains = sorted((2.0 ** int(GRADES[i]) - 1 for i in items), reverse=True)[:k]
        ideal = sum(g / math.log2(2 + place) for place, g in enumerate(gains))
        value = 0.0
        for i in items:
            rank = sum(hinge(h[j][0] - h[i][0]) for j in items)
            gain = (2.0 ** int(GRADES[i]) - 1) / math.log2(1 + rank) / ideal
            if k is not None:
                gain /= 1 + math.exp(-(k + 0.5 - rank) / softness)
            value += gain
        total.append(value)
    return -weighted(total, importance)


def nca(h, logarithm=False):
    result = []
    for i in range(N):
        kernel = {j: math.exp(-sum((a - b) ** 2 for a, b in zip(h[i], h[j], strict=True)))
                  for j in range(N) if j != i}  # fmt: skip
        p = sum(v for j, v in kernel.items() if CLASSES[j] == CLASSES[i]) / sum(kernel.values())
        result.append(math.log(p + 1e-6) if logarithm else p)
    return -mean(result)


def contrastive(first, second, temperature, two_way, radius=None):
    def unit(rows):
        return [[v / math.hypot(*row) for v in row] for row in rows]

    x, y = unit(first), unit(second)
    total = []
    for a, b in ((x, y), (y, x))[: 2 if two_way else 1]:
        for i in range(N):
            dot = [sum(p * q for p, q in zip(a[i], b[j], strict=True)) for j in range(N)]
            u = mean(math.exp((dot[j] - dot[i]) / temperature) for j in range(N) if j != i)
            total.append(temperature * (math.log(u + 1e-14) + (radius or 0.0)))
    return mean(total)


def group_losses(h):
    def cross_entropy(i):
        return math.log(sum(math.exp(v) for v in h[i])) - h[i][int(TARGETS[i])]

    return [mean(cross_entropy(i) for i in range(N) if GROUPS[i] == g) for g in range(3)]


def bags(h, pooled):
    total = []
    for bag in range(3):
        logit = pooled([h[i] for i in range(N) if GROUPS[i] == bag])
        total.append(math.log(1 + math.exp(logit)) - int(BAG_LABELS[bag]) * logit)
    return mean(total)


def penalty(h):
    return mean(
        max(mean(h[i][0] - 0.1 * g for i in range(N) if GROUPS[i] == g), 0.0) ** 2 for g in range(3)
    )


def soft_maximum(rows):
    return 0.5 * math.log(mean(math.exp(row[0] / 0.5) for row in rows))


def attention(rows):
    return sum(math.exp(a) * s for s, a in rows) / sum(math.exp(a) for _, a in rows)


def cvar(losses, fraction=0.5, width=0.1):
    return mean(width * math.log(1 + math.exp(v / width)) / fraction for v in losses)


HINGE = O.SquaredHinge()
MISSING = torch.where(KNOWN, MANY.long(), -1)


def individual(learned):
    objective = O.GlobalContrastive(N, temperature=0.3, two_way=False, learned=learned, radius=0.2)
    count = N if learned == "individual" else 1
    objective.temperatures = nn.Parameter(torch.full((count,), 0.3, dtype=torch.float64))
    return objective


def known_only(h, of_one):
    """The mean over the tasks of MISSING of a function of the scores of those with a label."""
    result = []
    for task in range(MISSING.shape[1]):
        rows = [i for i in range(N) if MISSING[i, task] >= 0]
        result.append(of_one([h[i][task] for i in rows], [int(MISSING[i, task]) for i in rows]))
    return mean(result)


def one_ap(h, y, surrogate=hinge):
    def rank(i, others):
        return 1 + sum(surrogate(h[j] - h[i]) for j in others if j != i)

    everyone, positives = range(len(h)), [i for i in range(len(h)) if y[i]]
    return -mean(rank(i, positives) / rank(i, everyone) for i in positives)


def one_partial(h, y):
    return mean(
        0.5 * math.log(mean(math.exp(hinge(h[j] - h[i]) / 0.5) for j in range(len(h)) if not y[j]))
        for i in range(len(h)) if y[i]
    )  # fmt: skip


def one_sensitive(h, y):
    return mean(
        0.5 * math.log(mean(math.exp(hinge(h[j] - h[i]) / 0.5) for i in range(len(h)) if y[i]))
        for j in range(len(h)) if not y[j]
    )  # fmt: skip


def one_push(h, y):
    return mean(
        mean(math.log2(1 + math.exp(h[j] - h[i])) for i in range(len(h)) if y[i]) ** 3
        for j in range(len(h)) if not y[j]
    )  # fmt: skip


def worst(h, fraction):
    """The mean of the largest losses, the last of them in part."""
    left, total = fraction * N, 0.0
    for loss in sorted((row[0] for row in h), reverse=True):
        part = min(1.0, max(left, 0.0))
        total, left = total + part * loss, left - 1
    return total / (fraction * N)


CASES = [
    Case("auc multi-class", O.MultiTaskAUC(CLASSES), X, 3,
         lambda h: auc(h, *(torch.stack([f(CLASSES, k) for k in range(3)], 1)
                            for f in (torch.eq, torch.ne)))),
    Case("auc multi-label, missing", O.MultiTaskAUC(MISSING), X, 2,
         lambda h: auc(h, MANY & KNOWN, ~MANY & KNOWN)),
    Case("auc binary", O.MultiTaskAUC(Y.bool()), X, 1,
         lambda h: auc(h, Y.bool()[:, None], ~Y.bool()[:, None])),
    Case("exponential auc", O.AUC(MISSING, temperature=0.5), X, 2,
         lambda h: exponential_auc(h, MANY & KNOWN, ~MANY & KNOWN, 0.5)),
    Case("gap, squared hinge", O.MultiTaskGap(CLASSES), X, 3,
         lambda h: gap(h, hinge)),
    Case("gap, squared", O.MultiTaskGap(CLASSES, surrogate=O.Squared()), X, 3,
         lambda h: gap(h, lambda s: (1 + s) ** 2)),
    Case("average precision", O.AveragePrecision(Y, surrogate=HINGE), X, 1,
         lambda h: average_precision(h, Y.bool()[:, None])),
    Case("mean average precision", O.AveragePrecision(MANY, surrogate=HINGE), X, 2,
         lambda h: average_precision(h, MANY)),
    Case("mean average precision, missing", O.AveragePrecision(MISSING, surrogate=HINGE), X, 2,
         lambda h: known_only(h, one_ap)),
    Case("average precision, sigmoid", O.AveragePrecision(Y), X, 1,
         lambda h: one_ap([row[0] for row in h], Y.tolist(), sigmoid)),
    Case("one-way partial auc", O.PartialAUC(Y, temperature=0.5), X, 1,
         lambda h: pairs(h, lambda s: math.exp(hinge(s) / 0.5), lambda u: 0.5 * math.log(u))),
    Case("two-way partial auc", O.PartialAUC(Y, temperature=0.5, two_way=0.7), X, 1,
         lambda h: pairs(h, lambda s: math.exp(hinge(s) / 0.5), lambda u: u ** (0.5 / 0.7))),
    Case("partial auc, missing", O.PartialAUC(MISSING, temperature=0.5), X, 2,
         lambda h: known_only(h, one_partial)),
    Case("partial auc, sensitive", O.PartialAUC(MISSING, temperature=0.5, min_tpr=0.5), X, 2,
         lambda h: known_only(h, one_sensitive)),
    Case("p-norm push", O.PNormPush(Y, power=3.0), X, 1, lambda h: push(h, 3.0)),
    Case("p-norm push, missing", O.PNormPush(MISSING, power=3.0), X, 2,
         lambda h: known_only(h, one_push)),
    Case("cox, breslow", O.Cox(TIMES, EVENTS, ties="breslow"), X, 1, breslow),
    Case("cox, efron", O.Cox(TIMES, EVENTS), X, 1, efron),
    Case("list-net", O.ListNet(GRADES, LENGTHS), X, 1, list_net),
    Case("ndcg", O.NDCG(GRADES, LENGTHS), X, 1, ndcg),
    Case("ndcg at 2", O.NDCG(GRADES, LENGTHS, top_k=2), X, 1,
         lambda h: ndcg(h, 2)),
    Case("ndcg, lists weighted", O.NDCG(GRADES, LENGTHS, weights=[1.0, 0.5, 4.0]), X, 1,
         lambda h: ndcg(h, importance=[1.0, 0.5, 4.0])),
    Case("list-net, lists weighted", O.ListNet(GRADES, LENGTHS, weights=[1.0, 0.5, 4.0]), X, 1,
         lambda h: list_net(h, importance=[1.0, 0.5, 4.0])),
    Case("dro", O.DRO(N, temperature=0.7), X, 1,
         lambda h: 0.7 * math.log(mean(math.exp(row[0] / 0.7) for row in h))),
    Case("cvar", O.CVaR(N, fraction=0.4), X, 1, lambda h: worst(h, 0.4)),
    Case("nca", O.NCA(CLASSES), X, 2, nca),
    Case("nca, logarithm", O.NCA(CLASSES, logarithm=True), X, 2,
         lambda h: nca(h, logarithm=True)),
    Case("contrastive, one-way", O.GlobalContrastive(N, temperature=0.3, two_way=False), (X, Z), 2,
         lambda h, g: contrastive(h, g, 0.3, False)),
    Case("contrastive, two-way", O.GlobalContrastive(N, temperature=0.3), (X, Z), 2,
         lambda h, g: contrastive(h, g, 0.3, True)),
    Case("contrastive, individual", individual("individual"), (X, Z), 2,
         lambda h, g: contrastive(h, g, 0.3, False, radius=0.2)),
    Case("contrastive, common temperature", individual("common"), (X, Z), 2,
         lambda h, g: contrastive(h, g, 0.3, False, radius=0.2)),
    Case("group dro", O.GroupDRO(GROUPS, TARGETS, temperature=0.5), X, 2,
         lambda h: mean(0.5 * (math.exp(v / 0.5) - 1) for v in group_losses(h))),
    Case("group cvar", O.GroupCVaR(GROUPS, TARGETS, fraction=0.5), X, 2,
         lambda h: cvar(group_losses(h))),
    Case("bags, soft maximum", O.SoftmaxPooling(GROUPS, BAG_LABELS, temperature=0.5), X, 1,
         lambda h: bags(h, soft_maximum)),
    Case("bags, attention", O.AttentionPooling(GROUPS, BAG_LABELS), X, 2,
         lambda h: bags(h, attention)),
    Case("penalty", O.ConstraintPenalty(GROUPS, penalty=2.0,
                                        constraint=lambda h, y, block: h[:, 0] - 0.1 * block), X, 1,
         penalty),
]  # fmt: skip
