"""Batches of 1, 4, 16 and 64 samples: losses that remember scores beside losses of the batch.

    python benchmarks/batch_one.py --data-dir DIR --output docs/results/losses/batch_one.jsonl

For every problem, batch size and method the same three step sizes are tried on a seed of their
own, and the best one runs on five more. The results are appended line by line; the same command
goes on where it was stopped. torchsurv and LibAUC are used where they are installed
(``pip install --no-deps --target DIR torchsurv libauc``, and DIR in PYTHONPATH).
"""

import argparse
import json
import os
import time
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import torch
from batch_methods import METHODS
from batch_problems import problem

SEEDS, TUNING_SEED = 5, 100

COX = {"table": (1, 4, 16, 64), "in-batch": (4, 16, 64), "accumulated": (4,)}
DEEP = {"table": (1, 64), "in-batch": (4, 64, 256), "in-batch, 5x the passes": (256,)}
RANKS = {
    "table": (1, 4, 16, 64),
    "table, balanced": (4, 16, 64),
    "in-batch": (4, 16, 64),
    "in-batch, balanced": (4, 16, 64),
    "cross-entropy": (1, 4, 16, 64),
}
STUDIES = {
    "cox gbsg": COX | {"Momentum": (1, 16), "Momentum, bank of 10": (1,)},
    "cox metabric": COX,
    "bags of digits": {"table": (1,), "in-batch": (4, 16, 64), "Momentum": (1,)},
    "deep cox metabric": DEEP,
    "cox support": {"table": (1, 4, 16, 64), "in-batch": (4, 16, 64)},
    "ap a9a": RANKS | {"LibAUC": (4, 16, 64)},
    "auc a9a": RANKS | {"LibAUC AUCM": (4, 16, 64)},
    "ndcg": {
        "table": (1, 4, 16, 64),
        "in-batch": (16, 64),
        "in-batch, by list": (4, 16, 64),
    },
    "deep cox support": DEEP,
}
"""{problem: {method: batch sizes}}, the most important ones first."""
TUNED_AT = {"cox support": 16, "deep cox support": 64, "ndcg": 16}
"""Smaller batches, whose runs are long, take the step size chosen at this one, scaled alike."""
NEEDS = {"Momentum": "torchsurv", "LibAUC": "libauc", "in-batch, balanced": "libauc"}


def run(name, method, batch, lr, seed):
    """Train once."""
    torch.manual_seed(seed)
    case = problem(name)
    network, begin = case.network(), time.perf_counter()
    try:
        METHODS[method](case, network, batch, lr)
    except FloatingPointError as error:
        return {"error": str(error)}
    return case.report(network) | {"seconds": round(time.perf_counter() - begin, 1)}


def best_rate(tried, choose):
    """The step size of the best run; one that diverged is never best."""
    sign = 1 if choose == "objective" else -1
    return min((r for r in tried if "error" not in r), key=lambda r: sign * r[choose])["lr"]


class Records:
    """Lines of a file, and those that are already there."""

    def __init__(self, path):
        self.path, self.found = path, {}
        if path.exists():
            for line in path.read_text().splitlines():
                record = json.loads(line)
                self.found[self._key(record)] = record

    @staticmethod
    def _key(record):
        return tuple(record.get(k) for k in ("problem", "method", "batch", "lr", "seed"))

    def get(self, make, **about):
        """The record of a run, made now if it is not there."""
        if self._key(about) not in self.found:
            record = about | make()
            print(json.dumps(record), flush=True)
            with self.path.open("a") as file:
                file.write(json.dumps(record) + "\n")
            self.found[self._key(about)] = record
        return self.found[self._key(about)]


def study(name, methods, batches, records):
    case = problem(name)
    if name.startswith("cox"):
        records.get(lambda: {"objective": case.optimum()}, problem=name, method="optimum")
    start = {"problem": name, "method": "start", "seed": 0}
    records.get(lambda: case.report(case.network()), **start)
    for batch in batches:
        for method, sizes in methods.items():
            package = next((p for part, p in NEEDS.items() if part in method), None)
            if batch not in sizes or (package and not find_spec(package)):
                continue
            about = {"problem": name, "method": method, "batch": batch}
            size = max(batch, TUNED_AT.get(name, batch))
            tried = [
                records.get(
                    lambda lr=lr: run(name, method, size, lr, TUNING_SEED),  # noqa: B023
                    **about | {"batch": size},
                    lr=lr,
                    seed=TUNING_SEED,
                )
                for lr in (rate * size**0.5 for rate in case.rates)
            ]
            # Another library's loss is not the objective.
            rules = [rule for rule in case.choose if rule == "valid" or own(method)]
            found = {best_rate(tried, rule) * (batch / size) ** 0.5 for rule in rules}
            for lr, seed in product(sorted(found), range(SEEDS)):
                records.get(
                    lambda lr=lr, seed=seed: run(name, method, batch, lr, seed),  # noqa: B023
                    **about,
                    lr=lr,
                    seed=seed,
                )


def own(method):
    """Whether a method descends on the objective of the problem."""
    return "cross-entropy" not in method and "LibAUC" not in method


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=os.environ.get("FCCO_DATA"))
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--problems", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16, 64, 256])
    options = parser.parse_args()
    if options.data_dir:
        os.environ["FCCO_DATA"] = options.data_dir
    torch.set_num_threads(1)
    records = Records(options.output)
    for name in options.problems:
        study(name, STUDIES[name], options.batches, records)


if __name__ == "__main__":
    main()
