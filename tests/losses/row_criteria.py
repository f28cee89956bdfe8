"""Every row loss with its options, batches for it, and its definition as plain loops."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from fcco import losses as L

N, D = 25, 5
CLASSES = torch.arange(N) % 3
HEAT = 0.25


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


X = torch.randn(N, 6, generator=generator(1), dtype=torch.float64)
Y = X + 0.3 * torch.randn(N, 6, generator=generator(2), dtype=torch.float64)


def mean(numbers):
    numbers = list(numbers)
    return sum(numbers) / len(numbers)


def cosine(a, b):
    dot = sum(p * q for p, q in zip(a, b, strict=True))
    return dot / math.sqrt(sum(p * p for p in a) * sum(q * q for q in b))


def distance(a, b):
    return sum((p - q) ** 2 for p, q in zip(a, b, strict=True))


@dataclass
class Case:
    """A row loss.

    ``call`` is the loss of samples ``index``, seen through a model; ``values`` gives (block, inner
    value as a list) for a batch of distinct samples, and ``outer`` f_i(u).
    """

    name: str
    build: Callable[[], L.RowLoss]
    call: Callable[..., torch.Tensor]
    values: Callable[..., dict[int, list[float]]]
    outer: Callable[[list[float], int], float]

    def __str__(self):
        return self.name

    def criterion(self, **changes):
        criterion = self.build().double()
        for name, value in changes.items():
            setattr(criterion, name, value)
        return criterion


def model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, D)).double()


def views(criterion, model, index):
    return criterion(model(X[index]), model(Y[index]), index)


def alike(model, index, two_way, heat):
    """u of each anchor: the mean over the others of exp((s_ij - s_ii) / T)."""
    x, y = (dict(zip(index, model(part[index]).tolist(), strict=True)) for part in (X, Y))
    found = {}
    for here, there, shift in ((x, y, 0), (y, x, N))[: 2 if two_way else 1]:
        for i in index:
            T = heat(i + shift)
            own = cosine(here[i], there[i])
            others = (math.exp((cosine(here[i], there[j]) - own) / T) for j in index if j != i)
            found[i + shift] = [mean(others)]
    return found


def with_heat(rows):
    return {block: [*u, HEAT] for block, u in rows.items()}


def neighbours(model, index):
    e = dict(zip(index, model(X[index]).tolist(), strict=True))
    found = {}
    for i in index:
        near = {j: math.exp(-distance(e[i], e[j])) for j in index if j != i}
        same = [near[j] if CLASSES[j] == CLASSES[i] else 0.0 for j in near]
        found[i] = [mean(same), mean(near.values())]
    return found


def sample_losses(model, index):
    return model(X[index]).square().mean(1)


def grouped(criterion, model, index):
    return criterion(sample_losses(model, index), CLASSES[index])


def means(model, index):
    cost = dict(zip(index, sample_losses(model, index).tolist(), strict=True))
    present = sorted({int(CLASSES[i]) for i in index})
    return {g: [mean(cost[i] for i in index if CLASSES[i] == g)] for g in present}


def softplus(x):
    return math.log1p(math.exp(x))


def _cases():
    def contrastive(**options):
        return lambda: L.ContrastiveLoss(N, temperature=HEAT, **options)

    def cosines(two_way):
        return lambda model, index: alike(model, index, two_way, lambda i: HEAT)

    def log(u, i):
        return HEAT * math.log(u[0])

    yield Case("contrastive", contrastive(), views, cosines(True), log)
    yield Case("contrastive, one-way", contrastive(two_way=False), views, cosines(False), log)
    for learned in ("common", "individual"):
        yield Case(
            f"contrastive, {learned}",
            contrastive(learned=learned, radius=0.2),
            views,
            lambda model, index: with_heat(cosines(True)(model, index)),
            lambda u, i: u[1] * (math.log(u[0]) + 0.2),
        )

    def near(criterion, model, index):
        return criterion(model(X[index]), index)

    yield Case("nca", lambda: L.NCALoss(CLASSES), near, neighbours, lambda u, i: -u[0] / u[1])
    yield Case(
        "nca, logarithm",
        lambda: L.NCALoss(CLASSES, logarithm=True),
        near,
        neighbours,
        lambda u, i: -math.log(u[0] / u[1] + 1e-6),
    )
    yield Case(
        "group dro",
        lambda: L.GroupDROLoss(3, temperature=0.7),
        grouped,
        means,
        lambda u, i: 0.7 * (math.exp(u[0] / 0.7) - 1),
    )
    yield Case(
        "group cvar",
        lambda: L.GroupCVaRLoss(3, fraction=0.5),
        grouped,
        lambda model, index: {g: [*u, 0.0] for g, u in means(model, index).items()},
        lambda u, i: u[1] + 0.1 * softplus((u[0] - u[1]) / 0.1) / 0.5,
    )


CASES = list(_cases())
