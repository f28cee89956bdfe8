"""Every loss as a dictionary of Python floats, from which value and gradient are recomputed.

A loss of scores has the last score of each sample, and ``objective.exact`` (which other tests
compare with plain loops). A loss of rows has u of each block; what a batch shows of a block is
written here as plain loops over its inner samples.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st

import fcco
from fcco import losses as L

N = 8
BETA = 0.3
LABELS = [1, 0, 0, 1, 0, 1, 0, 0]
GRADES, LENGTHS = [2, 0, 1, 0, 0, 3, 1, 0], [5, 3]
CLASSES = [0, 1, 0, 2, 1, 0, 2, 1]
NUMBERS = st.floats(-2, 2, allow_nan=False, width=32)
SHARES = st.floats(0.125, 0.875, width=32)
HEAT = 0.5


def tensor(numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def listed(data, elements, size, label):
    return data.draw(st.lists(elements, min_size=size, max_size=size), label=label)


def floats(data, size, elements=NUMBERS):
    return tensor(listed(data, elements, size, "values"))


@dataclass
class Scores:
    """A loss of scores."""

    build: Callable[[], L.ScoreLoss]
    table: dict[int, list[float]] = field(default_factory=dict)

    def inputs(self, data):
        """Scores and their index, in which samples may come twice."""
        size = data.draw(st.integers(1, N), label="size")
        return floats(data, size), torch.tensor(listed(data, st.integers(0, N - 1), size, "index"))

    def call(self, criterion, scores, index):
        return criterion(scores, index)

    def written(self, scores, index):
        """The table after a batch: a sample that comes twice has the mean of its scores."""
        return self.table | {i: [scores[index == i].mean().item()] for i in index.tolist()}

    def expected(self, criterion, scores, index):
        """Value and gradient of a batch, and the table after it."""
        table = self.written(scores, index)
        every = tensor([table.get(i, [0.0])[0] for i in range(N)]).requires_grad_()
        seen = tensor([float(i in table) for i in range(N)])
        value = criterion.objective.exact(every, seen)
        (slope,) = torch.autograd.grad(value, every)
        draws = tensor([index.tolist().count(i) for i in index.tolist()])
        distinct = len(set(index.tolist()))
        return value.item(), slope[index] * len(table) / distinct / draws, table

    def remembered(self, criterion):
        seen = criterion.seen.nonzero().flatten().tolist()
        return {i: criterion.scores[i].tolist() for i in seen}


@dataclass
class Rows:
    """A loss of rows: u_t = (1 - beta) u_{t-1} + beta (mean of the inner samples of a block)."""

    build: Callable[[], L.RowLoss]
    inputs: Callable[[Any], tuple[torch.Tensor, ...]]
    """What is differentiated, and what else a call needs."""
    samples: Callable[..., dict[int, torch.Tensor]]
    """The inner samples (n, p) of each block that a batch shows."""
    outer: Callable[[torch.Tensor], torch.Tensor]
    """f of a row (p,)."""
    call: Callable[..., torch.Tensor] = lambda criterion, *given: criterion(*given)
    raw: Callable[[L.RowLoss, torch.Tensor], torch.Tensor] = lambda criterion, rows: rows
    """The rows of the table in the units of ``samples``."""
    inner_size: int | None = None
    """``objective.inner_size`` n, if all terms are positive: u is at least 1/n of a fresh value."""
    table: dict[int, list[float]] = field(default_factory=dict)

    def written(self, samples):
        """The table after the inner samples of a step."""
        found = {}
        for block, lines in samples.items():
            fresh = lines.detach().mean(0)
            old = self.table.get(block)
            u = fresh if old is None else (1 - BETA) * tensor(old) + BETA * fresh
            found[block] = u.tolist()
        return self.table | found

    def expected(self, criterion, values, *rest, in_window=False):
        """Value and gradient of a batch, and the table after it.

        In a window slopes are taken at the rows before it, which are those of ``self.table``.
        """
        leaf = values.clone().requires_grad_()
        samples = self.samples(leaf, *rest)
        table, value, moved = self.written(samples), 0.0, 0.0
        for block, lines in samples.items():
            value += self.outer(tensor(table[block])).item() / len(samples)
            fresh = lines.mean(0)
            at = self.table.get(block, fresh.tolist()) if in_window else table[block]
            u = tensor(at)
            if self.inner_size is not None:
                u = torch.maximum(u, fresh.detach() / self.inner_size)
            u.requires_grad_()
            (slope,) = torch.autograd.grad(self.outer(u), u)
            moved = moved + (slope * fresh).sum() / len(samples)
        return value, torch.autograd.grad(moved, leaf)[0], table

    def remembered(self, criterion):
        visited = criterion.table.visited.nonzero().flatten()
        rows = self.raw(criterion, criterion.read(visited).double())
        return dict(zip(visited.tolist(), rows.tolist(), strict=True))


# Groups -------------------------------------------------------------------------------------------


def in_groups(data):
    size = data.draw(st.integers(1, 6), label="size")
    return floats(data, size), torch.tensor(listed(data, st.integers(0, 3), size, "groups"))


def of_groups(losses, groups):
    return {g: losses[groups == g].unsqueeze(1) for g in sorted(set(groups.tolist()))}


def of_groups_and_threshold(losses, groups):
    """The second number of a row is the threshold, which stays at its start."""
    found = of_groups(losses, groups).items()
    return {g: torch.cat([lines, torch.zeros_like(lines)], 1) for g, lines in found}


def worst(u):
    return u[1] + 0.1 * torch.nn.functional.softplus((u[0] - u[1]) / 0.1) / 0.5


def grow(u):
    return 2 * torch.expm1(u[0] / 2)


def probed(criterion, losses, groups):
    found = of_groups(losses, groups)
    values = torch.stack([lines.mean(0) for lines in found.values()])
    counts = torch.tensor([len(lines) for lines in found.values()])
    return criterion(fcco.Probe(torch.tensor(list(found)), values, samples=counts))


# Embeddings ---------------------------------------------------------------------------------------


def some_samples(data):
    order = data.draw(st.permutations(range(N)), label="index")
    return torch.tensor(order[: data.draw(st.integers(2, N), label="size")])


def embedded(data):
    index = some_samples(data)
    return floats(data, 2 * len(index)).view(-1, 2), index


def two_views(data):
    index = some_samples(data)
    views = floats(data, 4 * len(index)).view(2, -1, 2)
    return views + tensor([3.0, 0.0]), index  # none has the length 0


def of_views(views, index):
    """exp of the difference of cosines to the own pair, in both directions."""
    x, y = (view / view.norm(dim=1, keepdim=True) for view in views)
    found = {}
    for here, there, first in ((x, y, 0), (y, x, N)):
        for k, i in enumerate(index.tolist()):
            own = here[k] @ there[k]
            others = [here[k] @ there[j] - own for j in range(len(index)) if j != k]
            found[first + i] = torch.stack(others).div(HEAT).exp().unsqueeze(1)
    return found


def of_neighbours(embeddings, index):
    found = {}
    for k, i in enumerate(index.tolist()):
        lines = []
        for j, other in enumerate(index.tolist()):
            if j != k:
                near = (-(embeddings[k] - embeddings[j]).square().sum() / 4).exp()
                lines.append(torch.stack([near * (CLASSES[i] == CLASSES[other]), near]))
        found[i] = torch.stack(lines)
    return found


# Means --------------------------------------------------------------------------------------------


def some_lines(data):
    return (floats(data, data.draw(st.integers(1, 6), label="size")).unsqueeze(1),)


def square(u):
    return u[..., 0].square()


def two_tasks(data):
    """Probabilities and targets, some of them missing, but not those of the first sample."""
    size = data.draw(st.integers(1, 5), label="size")
    targets = listed(data, st.sampled_from([0, 1, -1]), 2 * size, "targets")
    targets = torch.tensor([abs(y) if k < 2 else y for k, y in enumerate(targets)])
    return floats(data, 2 * size, SHARES).view(-1, 2), targets.view(-1, 2)


def of_tasks(p, y):
    lines = torch.stack([p * y, p, y.double()], dim=-1) * (y >= 0).unsqueeze(-1)
    return {0: lines[:, 0], 1: lines[:, 1]}


def volumes(data):
    """Two classes, three voxels per volume."""
    size = data.draw(st.integers(1, 4), label="size")
    classes = torch.tensor(listed(data, st.integers(0, 1), 3 * size, "targets"))
    return floats(data, 6 * size, SHARES).view(-1, 2, 3), classes.view(-1, 3)


def of_volumes(p, classes):
    found = {}
    for c in (0, 1):
        y = (classes == c).double()
        found[c] = torch.stack([(p[:, c] * y).sum(1), p[:, c].sum(1), y.sum(1)], dim=1)
    return found


def overlap(u):
    return 1 - 2 * u[0] / (u[1] + u[2])


def predicted(data):
    """Predictions and targets that vary: every second one is larger by four."""
    size = data.draw(st.integers(2, 6), label="size")
    step = 4.0 * (torch.arange(size) % 2)
    return floats(data, size) / 2 + step, floats(data, size) / 2 + step + 1


def of_pairs(x, y):
    return {0: torch.stack([x, y, x * x, y * y, x * y], dim=1)}


def about_zero(criterion, rows):
    """Moments about zero, given those about the shift of the criterion."""
    a, b = criterion.shift[0].tolist()
    x, y, xx, yy, xy = rows.unbind(1)
    moments = [x + a, y + b, xx + 2 * a * x + a * a, yy + 2 * b * y + b * b]
    return torch.stack([*moments, xy + a * y + b * x + a * b], dim=1)


def pearson(u):
    x, y, xx, yy, xy = u
    return 1 - (xy - x * y) / ((xx - x * x) * (yy - y * y)).sqrt()


def concordance(u):
    x, y, xx, yy, xy = u
    return 1 - 2 * (xy - x * y) / (xx - x * x + yy - y * y + (x - y) ** 2)


def scored_groups(data):
    """Scores that tell the groups apart, so that no two of them have the same mean."""
    size = data.draw(st.integers(1, 6), label="size")
    groups = torch.tensor(listed(data, st.integers(0, 2), size, "groups"))
    return floats(data, size) + 5 * groups, groups


def of_members(scores, groups):
    member = torch.stack([(groups == g).double() for g in range(3)], dim=1)
    return {0: torch.cat([member * scores.unsqueeze(1), member], dim=1)}


def gap(u):
    rates = [u[g] / u[3 + g] for g in range(3) if u[3 + g] > 0]
    return max(rates) - min(rates)


def rows_of(loss, *given, **settings):
    return lambda inputs, samples, outer, **more: (
        lambda: Rows(lambda: loss(*given, beta=BETA, **settings), inputs, samples, outer, **more)
    )


def scores_of(loss, *given, **settings):
    return lambda: Scores(lambda: loss(*given, **settings))


CASES = {
    "cox": scores_of(L.CoxLoss, [3.0, 1.0, 2.0, 2.0, 5.0, 4.0, 4.0, 1.0], LABELS),
    "auc": scores_of(L.AUCLoss, LABELS),
    "average precision": scores_of(L.APLoss, LABELS),
    "partial auc": scores_of(L.PartialAUCLoss, LABELS, temperature=0.5),
    "push": scores_of(L.PushLoss, LABELS),
    "ndcg": scores_of(L.NDCGLoss, GRADES, LENGTHS),
    "listnet": scores_of(L.ListNetLoss, GRADES, LENGTHS),
    "dro": scores_of(L.DROLoss, N, temperature=0.7),
    "cvar": scores_of(L.CVaRLoss, N, fraction=0.4),
    "score": lambda: Scores(
        lambda: L.ScoreLoss(fcco.objectives.PartialAUC(LABELS, temperature=0.7, two_way=0.5))
    ),
    "group dro": rows_of(L.GroupDROLoss, 4, temperature=2.0)(in_groups, of_groups, grow),
    "group cvar": rows_of(L.GroupCVaRLoss, 4, fraction=0.5)(
        in_groups, of_groups_and_threshold, worst
    ),
    "table": rows_of(L.TableLoss, fcco.objectives.GroupDRO(torch.arange(4), temperature=2.0))(
        in_groups, of_groups, grow, call=probed
    ),
    "contrastive": rows_of(L.ContrastiveLoss, N, temperature=HEAT)(
        two_views,
        of_views,
        lambda u: HEAT * u[0].log(),
        call=lambda criterion, views, index: criterion(*views, index),
        inner_size=N - 1,
    ),
    "nca": rows_of(L.NCALoss, CLASSES, temperature=4.0)(
        embedded, of_neighbours, lambda u: -u[0] / u[1], inner_size=N
    ),
    "means": rows_of(L.MeansLoss, square, 1)(
        some_lines, lambda lines: {0: lines}, lambda u: u[0] ** 2
    ),
    "f1": rows_of(L.F1Loss, 2)(two_tasks, of_tasks, overlap),
    "dice": rows_of(L.DiceLoss, 2)(volumes, of_volumes, overlap),
    "pearson": rows_of(L.CorrelationLoss)(predicted, of_pairs, pearson, raw=about_zero),
    "concordance": rows_of(L.CorrelationLoss, concordance=True)(
        predicted, of_pairs, concordance, raw=about_zero
    ),
    "parity": rows_of(L.ParityLoss, 3)(scored_groups, of_members, gap),
}


def broken(values, *rest):
    """A batch that is not finite."""
    return values * math.nan, *rest
