"""How stale a table of scores gets, and what that does to a steep risk.

One-way partial AUC of a linear model on 4000 samples of a9a, three passes of Adam:

    python benchmarks/staleness.py --data-dir DIR --output docs/results/losses/staleness.jsonl
"""

import argparse
import itertools
import json
from pathlib import Path

import torch

from fcco.losses import PartialAUCLoss
from fcco_lab.datasets import load_classes

SAMPLES = 4000


def problem(directory):
    """Features with a constant, and labels."""
    train, _ = load_classes("a9a", directory)
    x = torch.cat([train.inputs[:SAMPLES].float(), torch.ones(SAMPLES, 1)], dim=1)
    return x, train.classes[:SAMPLES].long()


def best(x, labels, temperature):
    """The least value of F, by L-BFGS."""
    w = torch.zeros(x.shape[1], dtype=torch.float64, requires_grad=True)
    criterion, x = PartialAUCLoss(labels, temperature=temperature), x.double()
    optimizer = torch.optim.LBFGS([w], max_iter=200, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = criterion.exact(x @ w)
        loss.backward()
        return loss

    optimizer.step(closure)
    return criterion.exact(x @ w.detach()).item()


def run(x, labels, temperature, batch, lr, seed, kind, passes):
    """F after every pass, and along the run the spread of remembered minus true scores."""
    torch.manual_seed(seed)
    criterion = PartialAUCLoss(labels, temperature=temperature)
    if kind == "unguarded":
        criterion.guard = None
    model = torch.nn.Linear(x.shape[1], 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.Adam(model.parameters(), lr)
    values, stale, largest = [], [], 0.0
    for _ in range(passes):
        for step, index in enumerate(torch.randperm(SAMPLES).split(batch)):
            if kind == "in-batch":
                if len(labels[index].unique()) < 2:
                    continue
                part = PartialAUCLoss(labels[index], temperature=temperature)
                loss = part.exact(model(x[index]))
            else:
                loss = criterion(model(x[index]), index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if kind != "in-batch" and step % max(1, 500 // batch) == 0:
                off = (criterion.scores - model(x).detach())[criterion.seen]
                stale.append(off.std().item() if len(off) > 1 else 0.0)
        with torch.no_grad():
            scores = model(x)[:, 0]
            values.append(criterion.exact(scores.double()).item())
            largest = max(largest, scores.std().item())
    return {
        "value": values[-1],
        "values": values,
        "stale": sum(stale) / max(len(stale), 1),
        "spread": largest,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.1, 0.2, 1.0])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument(
        "--lrs", type=float, nargs="+", default=[0.001, 0.003, 0.01, 0.03, 0.1, 1.0]
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", default=["guarded", "unguarded", "in-batch"])
    options = parser.parse_args()
    x, labels = problem(options.data_dir)
    for temperature in options.temperatures:
        optimum = best(x, labels, temperature)
        for batch, lr, seed, kind in itertools.product(
            options.batches, options.lrs, range(options.seeds), options.kinds
        ):
            if kind == "in-batch" and batch == 1:
                continue  # it has no gradient
            record = {"kind": kind, "temperature": temperature, "batch": batch, "lr": lr}
            found = run(x, labels, temperature, batch, lr, seed, kind, options.passes)
            record |= {"seed": seed, "optimum": optimum, **found}
            line = json.dumps(record)
            print(line, flush=True)
            if options.output is not None:
                with options.output.open("a") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
