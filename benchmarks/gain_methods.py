"""Other corrections beside beta = "auto": ALEXR, MARS and version 2 with one slope, k = 16.

    FCCO_DATA=DIR python -m benchmarks.gain_methods --output docs/results/gain/methods.json

The problems, seeds, step sizes and number of steps of ``fcco study gain``. A sample costs SOX one
value and one gradient, the others more: this is an equal number of steps, not equal work. A result
is written as soon as it is known.
"""

from functools import cache, partial
from statistics import fmean, stdev

from benchmarks.known import arguments

from fcco.distributed.sharded import global_norm
from fcco.optim import by_name
from fcco.updates import Adam
from fcco_lab.studies.batches import train
from fcco_lab.studies.gain import RATES, TUNING_SEEDS
from fcco_lab.studies.workloads import WORKLOADS, Workload

SAMPLES, STEPS, SEEDS = 16, 400, range(5)
ALPHA, SCALE = 0.5, 0.025


class FreeMARS(Adam):
    """MARS's approximate form, in which the gradient of the last step stands for G(w_{t-1}).

    y_t = (1 - alpha) y_{t-1} + alpha G_t + s (1 - alpha) (G_t - G_{t-1}) has the solution

        y_t = (1 - s) z_t + s G_t = z_t + s (1 - alpha) / alpha (z_t - z_{t-1})

    with z the momentum of SOX: a step rule that remembers the last z is enough.
    """

    moments = ("h", "last")

    def directions(self, zs, states, norm=global_norm):
        """Adam's, of the extrapolated z."""
        ahead = [
            z + SCALE * (1 - ALPHA) / ALPHA * (z - state["last"])
            for z, state in zip(zs, states, strict=True)
        ]
        for z, state in zip(zs, states, strict=True):
            state["last"].copy_(z)
        return super().directions(ahead, states, norm)


METHODS = {
    "SOX, auto": ("sox", {"beta": "auto", "updated_slopes": True}),
    "SOX, 0.5": ("sox", {"beta": 0.5, "updated_slopes": True}),
    "MSVRM-v1, auto": ("msvrm-v1", {"beta": "auto", "updated_slopes": True}),
    "MSVRM-v2, one slope": ("msvrm-v2", {"beta": 0.5, "one_slope": True}),
    "ALEXR": ("alexr", {"beta": 0.5}),
    "MARS": ("mars", {"beta": 0.5, "updated_slopes": True}),
    "MARS, free": ("sox", {"beta": 0.5, "updated_slopes": True, "update": FreeMARS()}),
}


def run(workload: str, label: str, lr: float, seed: int) -> float:
    """The exact objective after training."""
    problem, (name, options) = _load(workload), METHODS[label]
    model = problem.make_model(seed)
    options = {"lr": lr, "alpha": ALPHA, "update": Adam()} | options
    opt = by_name(name, model, problem.objective, **options)
    return train(problem, model, opt, SAMPLES, STEPS, seed)[0]


@cache
def _load(workload: str) -> Workload:
    return WORKLOADS[workload]()


def main() -> None:
    """Run what is not known yet, then print a table."""
    known = arguments(__doc__).known

    def result(*setting):
        return known.of(" | ".join(map(str, setting)), partial(run, *setting))

    print(f"| problem | {' | '.join(METHODS)} |\n|{'---|' * (len(METHODS) + 1)}")
    for workload in WORKLOADS:
        cells = []
        for label in METHODS:
            tried = {
                lr: fmean(result(workload, label, lr, seed) for seed in TUNING_SEEDS)
                for lr in RATES
            }
            best = min(tried, key=tried.get)
            found = [result(workload, label, best, seed) for seed in SEEDS]
            cells.append(f"{fmean(found):.4f} ± {stdev(found):.4f}")
        print(f"| {workload} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
