"""P, R and beta = "auto" along runs of the study of the gain, as a figure.

FCCO_DATA=DIR python -m benchmarks.gain_along docs/results/gain/along.png
"""

import sys

import matplotlib
import torch

import fcco
from fcco.methods import chosen_gain
from fcco_lab.studies.fitting import compositional
from fcco_lab.studies.workloads import WORKLOADS

matplotlib.use("Agg")
from matplotlib import pyplot as plt

STEPS, SAMPLES, LR = 400, 16, 0.003


def along(name):
    """P, R and beta of every step."""
    problem = WORKLOADS[name]()
    model, objective = problem.make_model(0), problem.objective
    opt = fcco.SOX(
        model, objective, lr=LR, beta="auto", updated_slopes=True, update=fcco.updates.Adam()
    )
    sizes = {"steps": STEPS, "blocks": problem.blocks, "samples": SAMPLES}
    step, schedule = compositional(model, objective, problem.train, **sizes, seed=0, opt=opt)
    found = []
    for _ in range(STEPS):
        step()
        schedule.step()
        memory = opt.table.buffers["gain"]
        _, rows, surprise, noise = memory.tolist()
        found.append(
            (max(surprise - noise, 0.0) or float("nan"), noise, chosen_gain(memory))
            if rows
            else [float("nan")] * 3
        )
    return list(zip(*found, strict=True))


def main() -> None:
    """One column per problem: P and R above, beta below."""
    torch.set_num_threads(1)
    names = ("cox", "nca", "one-way pauc")
    figure, axes = plt.subplots(2, 3, figsize=(9, 4.5), sharex=True, layout="constrained")
    for name, (top, bottom) in zip(names, axes.T, strict=True):
        p, r, beta = along(name)
        top.plot(p, "-", label="P, drift")
        top.plot(r, "--", label="R, noise")
        top.set(yscale="log", title=name)
        bottom.plot(beta, "-", color="black")
        bottom.set(ylim=(0, 1), xlabel="step")
    axes[0, 0].legend()
    axes[0, 0].set_ylabel("mean square, in units of f")
    axes[1, 0].set_ylabel("beta")
    figure.savefig(sys.argv[1], dpi=110)


if __name__ == "__main__":
    main()
