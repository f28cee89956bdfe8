"""SCENT's rule with its shift tuned beside the step size, on the problems of ``fcco study gain``.

    FCCO_DATA=DIR python -m benchmarks.gain_scent --output docs/results/gain/scent.json

A result is written as soon as it is known.
"""

from functools import partial
from itertools import product
from statistics import fmean, stdev

from benchmarks.known import arguments

from fcco_lab.studies.gain import RATES, SEEDS, TUNING_SEEDS, train
from fcco_lab.studies.stacked import Variant
from fcco_lab.studies.workloads import WORKLOADS

SHIFTS, SIZES, STEPS = (-2.0, 0.0, 2.0), (4, 16), 400


def run(name: str, samples: int) -> dict[str, object]:
    """Shift and step size chosen on the tuning seeds, then the seeds of the study."""
    problem = WORKLOADS[name]()
    tried = [Variant(("scent", shift), lr) for shift, lr in product(SHIFTS, RATES)]
    tuning, _, _ = train(problem, samples, STEPS, TUNING_SEEDS, tried)
    best = tried[int(tuning.mean(0).argmin())]
    values, _, _ = train(problem, samples, STEPS, SEEDS, [best])
    return {"shift": best.beta[1], "lr": best.lr, "objectives": values[:, 0].tolist()}


def main() -> None:
    """Run what is not known yet, then print a table."""
    known = arguments(__doc__).known
    print("| problem | k | shift | lr | objective |\n|---|---|---|---|---|")
    for samples, name in product(SIZES, WORKLOADS):
        found = known.of(f"{name} {samples}", partial(run, name, samples))
        values = found["objectives"]
        cells = [name, samples, f"{found['shift']:g}", found["lr"]]
        cells.append(f"{fmean(values):.4f} ± {stdev(values):.4f}")
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
