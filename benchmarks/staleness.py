"""How stale a table of scores gets, and what that does to a steep risk.

One-way partial AUC of a linear model on 4000 samples of a9a, three passes of Adam:

    python benchmarks/staleness.py --data-dir DIR --output docs/results/losses/staleness.jsonl
"""

import argparse
import itertools
import json
from pathlib import Path

import torch

from fcco.data import load_classes
from fcco.losses import PartialAUCLoss

SAMPLES, PASSES = 4000, 3


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


def run(x, labels, temperature, batch, lr, seed):
    """F after every pass, and along the run the spread of remembered minus true scores."""
    torch.manual_seed(seed)
    criterion = PartialAUCLoss(labels, temperature=temperature)
    model = torch.nn.Linear(x.shape[1], 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.Adam(model.parameters(), lr)
    values, stale, largest = [], [], 0.0
    for _ in range(PASSES):
        for step, index in enumerate(torch.randperm(SAMPLES).split(batch)):
            loss = criterion(model(x[index]), index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % max(1, 500 // batch) == 0:
                off = (criterion.scores - model(x).detach())[criterion.seen]
                stale.append(off.std().item() if len(off) > 1 else 0.0)
        with torch.no_grad():
            scores = model(x)[:, 0]
            values.append(criterion.exact(scores.double()).item())
            largest = max(largest, scores.std().item())
    return {
        "value": values[-1],
        "values": values,
        "stale": sum(stale) / len(stale),
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
    options = parser.parse_args()
    x, labels = problem(options.data_dir)
    for temperature in options.temperatures:
        optimum = best(x, labels, temperature)
        for batch, lr, seed in itertools.product(
            options.batches, options.lrs, range(options.seeds)
        ):
            record = {"temperature": temperature, "batch": batch, "lr": lr, "seed": seed}
            record |= {"optimum": optimum, **run(x, labels, temperature, batch, lr, seed)}
            line = json.dumps(record)
            print(line, flush=True)
            if options.output is not None:
                with options.output.open("a") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
