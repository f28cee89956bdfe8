"""Forms of AUC as a training objective: test AUC and AP of a small network, beside cross-entropy.

    python -m benchmarks.auc_forms --data-dir DIR --output docs/results/estimators/auc_forms.json

Every step draws 128 samples that all tasks share. Forms: softmax cross-entropy with AdamW; the
paper's four moments of sigmoid scores; two means of exponentials at several temperatures, with
a share of cross-entropy, of logits or (softmax) of log-odds of classes that exclude each other. A
result is written as soon as it is known, and known results are not computed again.
"""

import argparse
import json
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from torch.nn.functional import cross_entropy, one_hot

import fcco
from fcco.data import TaskData
from fcco.metrics import macro_auroc, macro_average_precision
from fcco.objectives import ExponentialAUC, MultiTaskAUC, one_vs_rest
from fcco_lab.datasets import load_classes

STEPS, BATCH, SEEDS, WIDTH = 1000, 128, 3, 64
SETS = ("digits", "usps", "fashion_mnist")
LRS = (0.003,)
EXPONENTIAL: dict[str, dict[str, Any]] = {
    "softmax T=1": {},
    "softmax T=1 ce=1": {"cross_entropy": 1.0},
    "softmax T=0.3 ce=1": {"temperature": 0.3, "cross_entropy": 1.0},
    "exp T=1": {},
    "exp T=1 ce=1": {"cross_entropy": 1.0},
    "exp T=0.3": {"temperature": 0.3},
    "exp T=3": {"temperature": 3.0},
}
FORMS = ("cross-entropy", "moments", *EXPONENTIAL)


def run(form: str, data: Any, lr: float, seed: int) -> tuple[float, float]:
    """Test AUC and AP after training."""
    (inputs, classes), (test_inputs, test_classes) = data
    torch.manual_seed(seed)
    tasks = int(classes.max()) + 1
    model = torch.nn.Sequential(
        torch.nn.Linear(inputs.shape[1], WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, tasks)
    )
    blocks = TaskData.from_classes(inputs, classes)
    if form == "cross-entropy":
        stepper: Any = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    else:
        objective: Any = MultiTaskAUC(tasks)
        if form in EXPONENTIAL:
            objective = ExponentialAUC(tasks, len(inputs), **EXPONENTIAL[form])
        options = {"lr": lr, "alpha": 0.1, "beta": 0.5, "updated_slopes": True}
        stepper = fcco.SOX(model, objective, update=fcco.updates.Adam(), **options)
    # log-odds of classes that exclude each other, which also rank as the probabilities do
    softmax = form == "cross-entropy" or form.startswith("softmax")

    def scored(inputs: torch.Tensor) -> torch.Tensor:
        return one_vs_rest(model(inputs)) if softmax else model(inputs)

    for step in range(STEPS):
        rows = torch.randint(len(inputs), (BATCH,))
        for group in stepper.param_groups:
            group["lr"] = lr * (1 - step / STEPS)
        if form == "cross-entropy":
            stepper.zero_grad()
            cross_entropy(model(inputs[rows]), classes[rows]).backward()
            stepper.step()
        else:
            stepper.step(partial(objective.inner, scored, blocks.batch(rows)))
    with torch.no_grad():
        scores = scored(test_inputs)
    labels = one_hot(test_classes, tasks).bool()
    return macro_auroc(scores, labels), macro_average_precision(scores, labels)


def load(name: str, data_dir: Path | None) -> Any:
    """Flat, standardised inputs and classes of both parts."""
    parts = load_classes(name, data_dir)
    flat = [part.inputs.flatten(1).float() for part in parts]
    centre, spread = flat[0].mean(0), flat[0].std(0).clamp(min=1e-3)
    return [((x - centre) / spread, part.classes) for x, part in zip(flat, parts, strict=True)]


def table(results: dict[str, list[float]]) -> None:
    """Mean and deviation over the seeds."""
    for name in SETS:
        for form in FORMS:
            rows = []
            for lr in LRS:
                found = [results.get(f"{name} {form} {lr} {seed}") for seed in range(SEEDS)]
                if all(found):
                    auc, ap = zip(*found, strict=True)
                    rows.append((fmean(ap), stdev(ap), fmean(auc), stdev(auc), lr))
            if rows:
                ap, ap_spread, auc, auc_spread, lr = max(rows)
                text = f"AUC {auc:.4f} ({auc_spread:.4f})  AP {ap:.4f} ({ap_spread:.4f})  lr {lr}"
                print(f"{name:14s} {form:18s} {text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=SETS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    results = json.loads(given.output.read_text()) if given.output.exists() else {}
    for name in given.sets:
        data = load(name, given.data_dir)
        for seed in range(SEEDS):
            for form in FORMS:
                for lr in LRS:
                    key = f"{name} {form} {lr} {seed}"
                    if key not in results:
                        results[key] = run(form, data, lr, seed)
                        given.output.write_text(json.dumps(results, indent=0) + "\n")
        table(results)


if __name__ == "__main__":
    main()
