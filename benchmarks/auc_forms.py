"""Forms of AUC as a training objective: test AUC and AP of a small network, beside cross-entropy.

    python -m benchmarks.auc_forms --data-dir DIR --output docs/results/estimators/auc_forms.json

Every step draws 256 samples that all tasks share. Forms: softmax cross-entropy with AdamW, and by
SOX with Adam-style steps the paper's four moments and the two means of exponentials, of logits or
of log-odds of classes that exclude each other. Each form has the step size that is best on a held
out fifth of the training set, with a seed of its own. A result is written as soon as it is known,
and known results are not computed again; the table is written beside them, as Markdown.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import torch
from torch.nn.functional import cross_entropy, one_hot

import fcco
from fcco import LabelBatch
from fcco.metrics import macro_auroc, macro_average_precision
from fcco.objectives import ExponentialAUC, MultiTaskAUC, one_vs_rest
from fcco_lab.datasets import load_classes

STEPS, BATCH, WIDTH = 300, 256, 64
SEEDS, TUNING_SEED, LRS = range(3), 1000, (0.002, 0.01)
SETS = ("digits", "usps", "fashion_mnist")


class Form(NamedTuple):
    """How scores are made and compared; no temperature: not by exponentials."""

    name: str
    log_odds: bool = False
    temperature: float | None = None
    bounded: bool = True
    cross_entropy: float = 0.0

    def objective(self, tasks: int, samples: int) -> Any:
        """Of a data set."""
        if self.temperature is None:
            return MultiTaskAUC(tasks)
        options = {"cross_entropy": self.cross_entropy, "bounded": self.bounded}
        return ExponentialAUC(tasks, samples, self.temperature, **options)


def _exponentials() -> Iterator[Form]:
    for odds, share, bounded, T in product((False, True), (0.0, 1.0), (True, False), (1, 0.3, 0.1)):
        words = ["bounded" if bounded else "unbounded", f"T={T}"]
        words += ["cross-entropy"] if share else []
        words += ["log-odds"] if odds else []
        yield Form(" ".join(words), odds, T, bounded, share)


MOMENTS = Form("moments"), Form("moments log-odds", True)
FORMS = (Form("cross-entropy", True), *MOMENTS, *_exponentials())

Part = tuple[torch.Tensor, torch.Tensor]


class Networks(torch.nn.Module):
    """Networks with one hidden layer, each with inputs of its own: (M, k, d) to (k, M tasks)."""

    def __init__(self, seeds: Sequence[int], features: int, tasks: int, *, log_odds: bool) -> None:
        super().__init__()
        self.log_odds = log_odds
        self.members = torch.nn.ModuleList()
        for seed in seeds:
            torch.manual_seed(seed)
            layers = torch.nn.Linear(features, WIDTH), torch.nn.Linear(WIDTH, tasks)
            self.members.append(torch.nn.ModuleList(layers))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """All scores; log-odds among the tasks of one network."""
        first, second = (
            (
                torch.stack([layer.bias for layer in layers])[:, None],
                torch.stack([layer.weight for layer in layers]).mT,
            )
            for layers in zip(*self.members, strict=True)
        )
        hidden = torch.baddbmm(first[0], inputs, first[1]).relu()
        scores = torch.baddbmm(second[0], hidden, second[1])
        if self.log_odds:
            scores = one_vs_rest(scores.flatten(0, 1)).view_as(scores)
        return scores.transpose(0, 1).flatten(1)


def run(
    form: Form, train: Part, test: Part, lrs: Sequence[float], seeds: Sequence[int]
) -> list[list[float]]:
    """Test AUC and AP after training, for each lr and seed.

    The networks are trained side by side: they share nothing but the calls, and Adam-style steps do
    not depend on the scale of the objective, a mean over all of them.
    """
    inputs, classes = train
    tasks, count = int(classes.max()) + 1, len(seeds)
    ordinary = form.name == "cross-entropy"
    model = Networks(seeds, inputs.shape[1], tasks, log_odds=form.log_odds and not ordinary)
    groups = [
        {"params": list(member.parameters()), "lr": lr}
        for member, lr in zip(model.members, lrs, strict=True)
    ]
    objective = form.objective(count * tasks, len(inputs))
    if ordinary:
        stepper: Any = torch.optim.AdamW(groups, weight_decay=0.0)
    else:
        options = {"lr": lrs[0], "alpha": 0.1, "beta": 0.5, "updated_slopes": True}
        stepper = fcco.SOX(groups, objective, update=fcco.updates.Adam(), **options)
    draws = [torch.Generator().manual_seed(seed) for seed in seeds]
    blocks = torch.arange(count * tasks)
    for step in range(STEPS):
        rows = torch.stack([torch.randint(len(inputs), (BATCH,), generator=d) for d in draws])
        for group, lr in zip(stepper.param_groups, lrs, strict=True):
            group["lr"] = lr * (1 - step / STEPS)
        if ordinary:
            stepper.zero_grad()
            logits = model(inputs[rows]).view(BATCH, count, tasks).permute(1, 2, 0)
            cross_entropy(logits, classes[rows], reduction="none").mean(1).sum().backward()
            stepper.step()
        else:
            labels = one_hot(classes[rows], tasks).transpose(0, 1).flatten(1).float()
            batch = LabelBatch(blocks, inputs[rows], labels, 1 - labels)
            stepper.step(partial(objective.inner, model, batch))
    model.log_odds = form.log_odds
    with torch.no_grad():
        scores = model(test[0].expand(count, -1, -1)).split(tasks, 1)
    truth = one_hot(test[1], tasks).bool()
    return [[macro_auroc(h, truth), macro_average_precision(h, truth)] for h in scores]


def load(name: str, data_dir: Path | None) -> list[Part]:
    """Flat, standardized inputs and classes of both parts."""
    parts = load_classes(name, data_dir)
    flat = [part.inputs.flatten(1).float() for part in parts]
    centre, spread = flat[0].mean(0), flat[0].std(0).clamp(min=1e-3)
    return [((x - centre) / spread, part.classes) for x, part in zip(flat, parts, strict=True)]


def held_out(train: Part) -> tuple[Part, Part]:
    """Four fifths and one fifth of the training part."""
    order = torch.randperm(len(train[0]), generator=torch.Generator().manual_seed(TUNING_SEED))
    cut = len(order) // 5
    rest, fifth = ((train[0][rows], train[1][rows]) for rows in (order[cut:], order[:cut]))
    return rest, fifth


class Results(dict[str, list[float]]):
    """Test AUC and AP by their words, kept in a file.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(json.loads(path.read_text()) if path.exists() else {})
        self.path = path

    def of(
        self,
        name: str,
        form: Form,
        parts: tuple[Part, Part],
        lrs: Sequence[float],
        seeds: Sequence[int],
    ) -> list[list[float]]:
        """From the file, or run; one for each lr and seed."""
        words = [
            f"{name}, {form.name}, lr={lr}, seed={seed}"
            for lr, seed in zip(lrs, seeds, strict=True)
        ]
        if not self.keys() >= set(words):
            self.update(zip(words, run(form, *parts, lrs, seeds), strict=True))
            self.path.write_text(json.dumps(self, indent=0) + "\n")
        return [self[key] for key in words]


def cells(results: Results, name: str, form: Form) -> list[str]:
    """The chosen step size, and mean and deviation of AUC and AP over the seeds, if known."""
    for lr in LRS:
        words = [f"{name}, {form.name}, lr={lr}, seed={seed}" for seed in SEEDS]
        if results.keys() >= set(words):
            both = zip(*(results[key] for key in words), strict=True)
            return [f"{lr:g}", *(f"{fmean(x):.4f} ± {stdev(x):.4f}" for x in both)]
    return [""] * 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--forms", nargs="+", default=[form.name for form in FORMS])
    given = parser.parse_args()
    torch.set_num_threads(1)
    results = Results(given.output)
    for name in given.sets:
        train, test = load(name, given.data_dir)
        tuning = held_out(train)
        for form in FORMS:
            if form.name in given.forms:
                tried = results.of(name, form, tuning, LRS, [TUNING_SEED] * len(LRS))
                lr = LRS[tried.index(max(tried))]
                results.of(name, form, (train, test), [lr] * len(SEEDS), SEEDS)
                print(name, form.name, *cells(results, name, form), flush=True)
    heads = ["form", *(f"{name} {head}" for name in SETS for head in ("lr", "AUC", "AP"))]
    rows = [[form.name, *(c for n in SETS for c in cells(results, n, form))] for form in FORMS]
    lines = [heads, ["---"] * len(heads), *rows]
    given.output.with_suffix(".md").write_text(
        "".join(f"| {' | '.join(line)} |\n" for line in lines)
    )


if __name__ == "__main__":
    main()
