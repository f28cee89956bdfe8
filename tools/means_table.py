"""Measure functions of means at small batches: the final objective on the whole training set.

    python tools/means_table.py --data-dir DIR --output docs/results/means/means.jsonl
    python tools/means_table.py --output docs/results/means/means.jsonl --table
    python tools/means_table.py --output docs/results/means/means.jsonl --draw FILE.svg

Every method takes steps of Adam with a step size that falls linearly to 0, and sees the same
batches. Its step size is the best of a grid, by the objective on seeds 0 and 1; the grid grows
while the best lies at its edge. Then seeds 2 to 4 are run with it. Results are appended as they
come; the same command goes on where it was stopped.

The runs of a method differ in step size and seed. They are computed side by side: parameters,
batches and outputs have a first dimension of K runs, and a table with K blocks serves all of them,
except for "auto", whose gain is chosen for each run alone.
"""

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from fcco.losses import CorrelationLoss, DiceLoss, F1Loss, ParityLoss

FIXED = ("0.3", "0.1", "0.03", "0.01")
DETACHED = ("average, detached 0.9", "average, detached 0.99")
ATTACHED = ("average, attached 0.9", "average, attached 0.99")
WEIGHTED = "weighted cross-entropy"
GROUPS = {
    "auto": ("auto",),
    "best fixed β": FIXED,
    "loss of the batch": ("in-batch",),
    "accumulation of 64": ("accumulated",),
    "average by hand, detached": DETACHED,
    "average by hand, in the graph": ATTACHED,
}
METHODS = [method for methods in GROUPS.values() for method in methods]
WINDOW = 5
"""Steps for which an average that is not detached keeps its graph."""
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3)
START = RATES[2:6]


class F1:
    """Inputs, what is known of each, a network, our loss, and the same function by hand.

    In all methods outputs and what is known have a first dimension of K runs.
    """

    passes, passes_at_one, one_table = 5, 2, True

    def __init__(self, x, known, network, batches, test=None):
        self.x, self.known, self.network, self.batches = x, known, network, batches
        self.test = test

    def build(self, runs, beta):
        return F1Loss(runs * self.known.shape[1], beta=beta)

    def loss(self, criterion, logits, known):
        """Our loss, of the tasks of all runs side by side: (K, B, T, ...) as (B, K T, ...)."""
        return criterion(*(x.movedim(0, 1).flatten(1, 2) for x in (logits.sigmoid(), known)))

    def rest(self, logits, known):
        """What is added to the function of means, summed over runs."""
        return 0.0

    def statistics(self, logits, known):
        """(K, B, T, 3): sums over voxels, if there are some, of p y, p and y."""
        p = logits.sigmoid().where(known >= 0, 0.0)
        y = known.clamp(min=0).to(p)
        return torch.stack([p * y, p, y], dim=3).unsqueeze(-1).flatten(4).sum(4)

    def function(self, u):
        return 1 - 2 * u[..., 0] / (u[..., 1] + u[..., 2]).clamp(min=1e-8)

    def weighted(self, logits, known):
        """Cross-entropy with as much weight on positives as on negatives, a usual rival."""
        weight = (self.known == 0).sum(0) / (self.known == 1).sum(0)
        y = known.clamp(min=0).to(logits)
        each = binary_cross_entropy_with_logits(logits, y, pos_weight=weight, reduction="none")
        return (each * (known >= 0)).mean((1, 2)).sum()

    def report(self, network):
        """The objective on the whole training set, and F1 of decisions on the test set."""
        record = {"objective": self.build(1, 1.0).exact(network(self.x).sigmoid(), self.known)}
        if self.test:
            decided, y = network(self.test[0]) > 0, self.test[1]
            hits, all_decided = (decided & (y == 1)).sum(0), (decided & (y >= 0)).sum(0)
            record["held_out"] = (2 * hits / (all_decided + (y == 1).sum(0))).mean()
        return record


class Dice(F1):
    passes = passes_at_one = 8

    def build(self, runs, beta):
        return DiceLoss(runs, beta=beta)


class Correlation(F1):
    passes, concordance = 20, False

    def build(self, runs, beta):
        return CorrelationLoss(runs, concordance=self.concordance, beta=beta)

    def loss(self, criterion, outputs, known):
        return criterion(*(x.squeeze(2).T for x in (outputs, known)))

    def statistics(self, outputs, known):
        x, y = outputs.double(), known.double()
        return torch.stack([x, y, x * x, y * y, x * y], dim=-1)

    def function(self, u):
        x, y, xx, yy, xy = u.unbind(-1)
        covariance, spread_x, spread_y = xy - x * y, xx - x * x, yy - y * y
        if self.concordance:
            return 1 - 2 * covariance / (spread_x + spread_y + (x - y) ** 2).clamp(min=1e-8)
        return 1 - covariance / (spread_x * spread_y).clamp(min=1e-8).sqrt()

    def report(self, network):
        return {"objective": self.build(1, 1.0).exact(network(self.x), self.known)}


class Concordance(Correlation):
    concordance = True


class Parity(F1):
    """Cross-entropy and the gap of two groups; known are labels and groups."""

    passes, one_table = 3, False

    def build(self, runs, beta):
        return ParityLoss(2, beta=beta)

    def loss(self, criterion, logits, known):
        return criterion(logits[0].sigmoid(), known[0, :, 1])

    def rest(self, logits, known):
        return len(logits) * binary_cross_entropy_with_logits(logits, known[..., :1].to(logits))

    def statistics(self, logits, known):
        member = one_hot(known[..., 1], 2).to(logits)
        return torch.cat([member * logits.sigmoid(), member], dim=-1).unsqueeze(2)

    def function(self, u):
        total, share = u.chunk(2, dim=-1)
        rate = total / share.clamp(min=1e-8)
        return (rate[..., 1] - rate[..., 0]).abs() * (share > 0).all(-1)

    def report(self, network):
        logits, (y, groups) = network(self.x), self.known.unbind(1)
        gap = self.build(1, 1.0).exact(logits.sigmoid(), groups)
        accuracy = ((logits.squeeze(1) > 0) == y).double().mean()
        total = gap + self.rest(logits.unsqueeze(0), self.known.unsqueeze(0))
        return {"objective": total, "gap": gap, "accuracy": accuracy}


def perceptron(width, hidden, outputs):
    return lambda: nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def a9a(directory, part, positives=None):
    """10,000 samples, of which 500 are positive or as many as chance brings."""
    with np.load(directory / "a9a.npz") as data:
        x, y = data[f"x_{part}"], data[f"y_{part}"].astype(int)
    random = np.random.RandomState(0)
    if positives is None:
        rows = random.permutation(len(y))[:10_000]
    else:
        ones, zeros = (random.permutation(np.flatnonzero(y == label)) for label in (1, 0))
        rows = np.concatenate([ones[:positives], zeros[: 10_000 - positives]])
        rows = random.permutation(rows)
    return torch.from_numpy(x[rows]).float(), torch.from_numpy(y[rows]).unsqueeze(1)


def f1_of_a9a(directory):
    x, y = a9a(directory, "train", 500)
    return F1(x, y, lambda: nn.Linear(123, 1), (1, 4, 16, 64), a9a(directory, "test", 500))


def f1_of_tox21(directory):
    with np.load(directory / "tox21.npz") as data:
        bits = [np.unpackbits(data[f"x_{part}"], axis=1) for part in ("train", "test")]
        x, x_test = (torch.from_numpy(b).float() for b in bits)
        y, y_test = (torch.from_numpy(data[f"y_{part}"]).long() for part in ("train", "test"))
    return F1(x, y, perceptron(1024, 64, 12), (4, 16, 64), (x_test, y_test))


def diabetes(kind):
    x, y = load_diabetes(return_X_y=True)
    x, y = (torch.tensor((z - z.mean(0)) / z.std(0)).float() for z in (x, y))
    return kind(x, y.unsqueeze(1), perceptron(10, 32, 1), (2, 4, 8, 32))


def dice_of_volumes(_):
    """The volumes and the network of examples/means_segmentation.py."""
    torch.manual_seed(0)
    grid = torch.stack(torch.meshgrid(*[torch.arange(12.0)] * 3, indexing="ij"))
    radius = torch.empty(120, 1, 1, 1).uniform_(1, 5)
    radius[torch.rand(120) < 0.7] = 0
    mask = ((grid - 12 * torch.rand(120, 3, 1, 1, 1)).norm(dim=1) < radius).float().unsqueeze(1)
    x = 0.6 * mask + torch.randn(mask.shape)

    def network():
        layers = nn.Conv3d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv3d(8, 1, 3, padding=1)
        return nn.Sequential(*layers)

    return Dice(x, mask, network, (1, 4, 16))


def parity_of_a9a(directory):
    x, y = a9a(directory, "train")
    sex = x[:, 72:73].long()  # column 71 says "female", column 72 "male"
    return Parity(x, torch.cat([y, sex], dim=1), lambda: nn.Linear(123, 1), (4, 16))


PROBLEMS = {
    "1 − F1, a9a": f1_of_a9a,
    "1 − macro-F1, tox21": f1_of_tox21,
    "1 − Pearson, diabetes": lambda _: diabetes(Correlation),
    "1 − concordance, diabetes": lambda _: diabetes(Concordance),
    "1 − Dice, volumes": dice_of_volumes,
    "cross-entropy + gap, a9a": parity_of_a9a,
}


class Loss:
    """The loss of K runs by one method, as a sum over runs."""

    def __init__(self, problem, method, runs):
        self.problem, self.method = problem, method
        self.criteria, self.average = [], None
        self.decay = float(method.split()[-1]) if method in DETACHED + ATTACHED else 0.0
        if method == "auto" or method in FIXED:
            self.each = runs if problem.one_table and method in FIXED else 1
            beta = "auto" if method == "auto" else float(method)
            self.criteria = [problem.build(self.each, beta) for _ in range(runs // self.each)]

    def __call__(self, step, logits, known):
        problem = self.problem
        if self.method == WEIGHTED:
            return problem.weighted(logits, known)
        total = problem.rest(logits, known)
        for k, criterion in enumerate(self.criteria):
            part = slice(k * self.each, (k + 1) * self.each)
            total = total + self.each * problem.loss(criterion, logits[part], known[part])
        if self.criteria:
            return total
        u = problem.statistics(logits, known).mean(1)
        if self.decay:
            old = u.detach() if self.average is None else self.average
            if self.method in DETACHED or step % WINDOW == 0:
                old = old.detach()
            u = self.average = self.decay * old + (1 - self.decay) * u
        return total + problem.function(u).mean(1).sum()


def train(problem, method, batch, rates, seeds):
    """One record per run; ``rates`` and ``seeds`` have an entry for each."""
    networks = []
    for seed in seeds:
        torch.manual_seed(seed)
        networks.append(problem.network())
    values = stack_module_state(networks)[0]
    forward = vmap(lambda p, x: functional_call(networks[0], p, (x,)))
    first, second, gradient = (
        {n: torch.zeros_like(p) for n, p in values.items()} for _ in range(3)
    )
    orders = [torch.Generator().manual_seed(1000 + seed) for seed in seeds]
    batches = []
    # One sample per step is slow: fewer passes, the same for all methods.
    for _ in range(problem.passes if batch > 1 else problem.passes_at_one):
        order = torch.stack([torch.randperm(len(problem.x), generator=g) for g in orders])
        batches += order.split(batch, dim=1)
    loss, window, updates = Loss(problem, method, len(seeds)), [], 0
    every = max(1, 64 // batch) if method == "accumulated" else 1
    for t, rows in enumerate(batches):
        # Parameters are new tensors in every step, never overwritten: torch would refuse to go
        # back through an average whose graph holds parameters that have changed.
        values = {name: p.detach().requires_grad_() for name, p in values.items()}
        window = [*window, values] if method in ATTACHED and t % WINDOW else [values]
        total = loss(t, forward(values, problem.x[rows]), problem.known[rows])
        leaves = [(name, p) for old in window for name, p in old.items()]
        found = torch.autograd.grad(total, [p for _, p in leaves], retain_graph=method in ATTACHED)
        for (name, _), part in zip(leaves, found, strict=True):
            gradient[name] += part
        if (t + 1) % every == 0 or t + 1 == len(batches):
            updates += 1
            rate = torch.tensor(rates) * (1 - t / len(batches)) / (1 - 0.9**updates)
            moved = {}
            for name, p in values.items():
                first[name].lerp_(gradient[name], 0.1)
                second[name].lerp_(gradient[name].square(), 0.001)
                root = (second[name] / (1 - 0.999**updates)).sqrt() + 1e-8
                each = rate.reshape(-1, *[1] * (p.ndim - 1))
                moved[name] = p.detach() - each * first[name] / root
                gradient[name].zero_()
            values = moved
    records = []
    for k, (rate, seed) in enumerate(zip(rates, seeds, strict=True)):
        mine = {name: p[k] for name, p in values.items()}
        with torch.no_grad():
            found = problem.report(lambda x, mine=mine: functional_call(networks[0], mine, (x,)))
        numbers = {name: round(value.item(), 6) for name, value in found.items()}
        records.append({"lr": rate, "seed": seed, **numbers})
    return records


class Results:
    """Records in a file of JSON lines, by cell: problem, batch and method."""

    def __init__(self, path):
        self.path, self.runs = path, defaultdict(dict)
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            self.keep(json.loads(line))

    def keep(self, r):
        self.runs[r["problem"], r["batch"], r["method"]][r["lr"], r["seed"]] = r

    def run(self, problem, cell, pairs):
        """Train and record the runs, pairs of step size and seed, that are missing."""
        missing = [pair for pair in pairs if pair not in self.runs[cell]]
        if not missing:
            return
        start = time.perf_counter()
        records = train(problem, cell[2], cell[1], *zip(*missing, strict=True))
        seconds = round((time.perf_counter() - start) / len(missing), 2)
        with self.path.open("a", encoding="utf-8") as file:
            for record in records:
                r = {"problem": cell[0], "batch": cell[1], "method": cell[2], **record}
                self.keep(r)
                file.write(json.dumps({**r, "seconds": seconds}, ensure_ascii=False) + "\n")

    def best(self, cell):
        """The step size with the least objective on seeds 0 and 1, and all that were tried."""
        runs = self.runs[cell]
        tried = {lr for lr, _ in runs}
        return min(tried, key=lambda lr: runs[lr, 0]["objective"] + runs[lr, 1]["objective"]), tried

    def fill(self, problem, cell):
        """Tune the step size on seeds 0 and 1, and run the other seeds with the best."""
        wanted = set(START)
        while wanted:
            self.run(problem, cell, [(lr, seed) for lr in sorted(wanted) for seed in (0, 1)])
            best, tried = self.best(cell)
            place = RATES.index(best)
            wanted = set(RATES[max(place - 1, 0) : place + 2]) - tried
        self.run(problem, cell, [(best, seed) for seed in range(2, 5)])

    def final(self, name, batch, methods, field="objective"):
        """The best of some methods by their mean over seeds, and ``field`` of each seed."""
        found = {}
        for cell in [(name, batch, m) for m in methods if (name, batch, m) in self.runs]:
            lr, _ = self.best(cell)
            if all((lr, seed) in self.runs[cell] for seed in range(5)):
                found[cell[2]] = [self.runs[cell][lr, seed] for seed in range(5)]
        if not found:
            return "", []
        best = min(found, key=lambda m: mean(r["objective"] for r in found[m]))
        return best, [r.get(field) for r in found[best]]

    def batches(self, name):
        return sorted({batch for problem, batch, _ in self.runs if problem == name})


def write_table(results, field):
    """Mean and standard deviation over seeds, in Markdown, where ``field`` was recorded."""
    groups = {**GROUPS, WEIGHTED: (WEIGHTED,)} if field == "held_out" else GROUPS
    yield f"| objective | batch | {' | '.join(groups)} |"
    yield "|---" * (2 + len(groups)) + "|"
    for name in PROBLEMS:
        for batch in results.batches(name):
            line = f"| {name} | {batch} |"
            for methods in groups.values():
                best, values = results.final(name, batch, methods, field)
                if best and None not in values:
                    which = f" ({best.split()[-1]})" if len(methods) > 1 else ""
                    line += f" {mean(values):.3f} ± {stdev(values):.3f}{which} |".replace("0.", ".")
            if not line.endswith(f" {batch} |"):
                yield line


def draw(results, path):
    """The final objective against the batch size, one panel per problem, for narrow screens too."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    from fcco_lab.presentation.styles import styles

    rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "means"})
    figure = Figure(figsize=(5.4, 8.4), layout="constrained")
    looks = styles(GROUPS)
    for place, name in zip(figure.subplots(3, 2).ravel(), PROBLEMS, strict=True):
        batches = results.batches(name)
        for label, methods in GROUPS.items():
            heights = [mean(results.final(name, batch, methods)[1]) for batch in batches]
            dash, width = ("-", 2.4) if label == "auto" else ((0, (3, 1.5)), 1.3)
            style = {"color": looks[label]["color"], "marker": looks[label]["marker"] or "v"}
            place.plot(batches, heights, ls=dash, lw=width, ms=5, label=label, **style)
        place.set_title(name, fontsize=10)
        place.set_xlabel("batch size", fontsize=9)
        place.set_xscale("log", base=2)
        place.set_xticks(batches, [str(batch) for batch in batches])
        place.tick_params(labelsize=9)
        place.grid(alpha=0.25, lw=0.6)
        place.spines[["top", "right"]].set_visible(False)
    figure.supylabel("final objective on the training set", fontsize=10)
    handles, labels = place.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    figure.savefig(path, format="svg", metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("FCCO_DATA", "."))
    parser.add_argument("--output", type=Path, required=True, help="the file of results")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of the names of problems")
    parser.add_argument("--methods", nargs="+", default=[*METHODS, WEIGHTED])
    parser.add_argument("--draw", type=Path, help="draw the figure to this file, and run nothing")
    parser.add_argument("--table", metavar="FIELD", help="print a table, and run nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = Results(options.output)
    if options.draw:
        draw(results, options.draw)
    if options.table:
        sys.stdout.write("\n".join(write_table(results, options.table)) + "\n")
    if options.draw or options.table:
        return
    for name in [name for name in PROBLEMS if any(part in name for part in options.only)]:
        problem = PROBLEMS[name](Path(options.data_dir))
        allowed = [*METHODS, WEIGHTED] if problem.test else METHODS
        for batch in sorted(problem.batches, reverse=True):
            for method in [m for m in allowed if m in options.methods]:
                results.fill(problem, (name, batch, method))
                best, values = results.final(name, batch, [method])
                sys.stdout.write(f"{name}, {batch}, {best}: {mean(values):.4f}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
