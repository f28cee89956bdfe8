"""Forms of AUC as a training objective: test AUC and AP of a small network, beside cross-entropy.

    python -m benchmarks.auc_forms --data-dir DIR --output docs/results/estimators/auc_forms.json

Every step draws 128 samples that all tasks share. Forms: softmax cross-entropy with AdamW, and by
SOX with Adam-style steps the paper's four moments and the two means of exponentials, of logits or
of log-odds of classes that exclude each other. Each form has the step size that is best on a held
out fifth of the training set, with a seed of its own. A result is written as soon as it is known,
and known results are not computed again; the table is written beside them, as Markdown.
"""

import argparse
import json
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import torch
from torch.nn.functional import cross_entropy, one_hot

import fcco
from fcco.data import TaskData
from fcco.metrics import macro_auroc, macro_average_precision
from fcco.objectives import ExponentialAUC, MultiTaskAUC, one_vs_rest
from fcco_lab.datasets import load_classes

STEPS, BATCH, WIDTH = 1000, 128, 64
SEEDS, TUNING_SEED, LRS = range(5), 1000, (0.001, 0.003, 0.01)
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


def run(form: Form, train: Part, test: Part, lr: float, seed: int) -> tuple[float, float]:
    """Test AUC and AP after training."""
    inputs, classes = train
    torch.manual_seed(seed)
    tasks = int(classes.max()) + 1
    model = torch.nn.Sequential(
        torch.nn.Linear(inputs.shape[1], WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, tasks)
    )
    ordinary = form.name == "cross-entropy"
    blocks, objective = TaskData.from_classes(inputs, classes), form.objective(tasks, len(inputs))
    if ordinary:
        stepper: Any = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    else:
        options = {"lr": lr, "alpha": 0.1, "beta": 0.5, "updated_slopes": True}
        stepper = fcco.SOX(model, objective, update=fcco.updates.Adam(), **options)

    def scored(inputs: torch.Tensor) -> torch.Tensor:
        return one_vs_rest(model(inputs)) if form.log_odds else model(inputs)

    for step in range(STEPS):
        rows = torch.randint(len(inputs), (BATCH,))
        for group in stepper.param_groups:
            group["lr"] = lr * (1 - step / STEPS)
        if ordinary:
            stepper.zero_grad()
            cross_entropy(model(inputs[rows]), classes[rows]).backward()
            stepper.step()
        else:
            stepper.step(partial(objective.inner, scored, blocks.batch(rows)))
    with torch.no_grad():
        scores = scored(test[0])
    labels = one_hot(test[1], tasks).bool()
    return macro_auroc(scores, labels), macro_average_precision(scores, labels)


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


class Results(dict[str, Any]):
    """Results by their words, kept in a file.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(json.loads(path.read_text()) if path.exists() else {})
        self.path = path

    def of(self, name: str, form: Form, lr: float, seed: int, *parts: Part) -> list[float]:
        """From the file, or run."""
        key = f"{name}, {form.name}, lr={lr}, seed={seed}"
        if key not in self:
            self[key] = [*run(form, *parts, lr, seed)]
            self.path.write_text(json.dumps(self, indent=0) + "\n")
        return self[key]  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=SETS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    results = Results(given.output)
    rows = {form: [form.name] for form in FORMS}
    for name in given.sets:
        train, test = load(name, given.data_dir)
        parts = held_out(train)
        for form in FORMS:
            lr = max(LRS, key=lambda lr: results.of(name, form, lr, TUNING_SEED, *parts))
            found = [results.of(name, form, lr, seed, train, test) for seed in SEEDS]
            both = [f"{fmean(x):.4f} ± {stdev(x):.4f}" for x in zip(*found, strict=True)]
            rows[form] += [f"{lr:g}", *both]
            print(name, *rows[form][:1], *rows[form][-3:], flush=True)
    heads = ["form", *(f"{name} {head}" for name in given.sets for head in ("lr", "AUC", "AP"))]
    lines = [heads, ["---"] * len(heads), *rows.values()]
    given.output.with_suffix(".md").write_text(
        "".join(f"| {' | '.join(line)} |\n" for line in lines)
    )


if __name__ == "__main__":
    main()
