"""Where version 2 takes its slopes: measured on digits, and on objectives whose f is a logarithm.

    python benchmarks/slopes.py one            # u_{t-1} at both points, against the paper's; digits
    FCCO_DATA=DIR python benchmarks/slopes.py updated   # slopes at u_t, STORM scaled from 0 to 1

The first compares final objectives over 24 settings. The second tunes every scale alike (three
step sizes by two betas, on a seed of its own) on contrastive and one-way partial AUC with 16 inner
samples per block, 400 Adam-style steps.
"""

import json
import math
import sys
from functools import partial
from itertools import product

import torch

import fcco
from fcco.data import block_loader, exact_value, load_digits
from fcco.methods import mars
from fcco.objectives import MultiTaskAUC
from fcco.updates import Adam, Plain
from fcco_lab.studies.workloads import WORKLOADS, make_mlp


def final_value(opt, model, data, objective, *, blocks, samples, steps, seed, decay=False):
    """The exact objective after some steps; inf if the run blew up."""
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda t: 1 - t / steps if decay else 1.0)
    loader = block_loader(
        data,
        objective,
        blocks_per_step=blocks,
        samples_per_block=samples,
        num_steps=steps,
        seed=seed,
    )
    try:
        for batch in loader:
            opt.step(partial(objective.inner, model, batch))
            schedule.step()
    except FloatingPointError:
        return math.inf
    with torch.no_grad():
        return exact_value(model, data, objective, chunk_size=4096)


def one_slope():
    """MSVRM-v2 on digits, with the paper's slopes and with one."""
    train, _ = load_digits()
    objective = MultiTaskAUC(10)
    rules = [("adam", 0.003), ("adam", 0.01), ("plain", 0.3), ("plain", 3.0)]
    for (rule, lr), alpha, beta in product(rules, (0.03, 0.1, 0.5), (0.1, 0.5)):
        record = {"rule": rule, "lr": lr, "alpha": alpha, "beta": beta}
        for name, one in (("paper", False), ("one", True)):
            record[name] = []
            for seed in range(2):
                model = make_mlp(64, 64, 10)(seed)
                opt = fcco.MSVRM(
                    model,
                    objective,
                    version=2,
                    lr=lr,
                    alpha=alpha,
                    beta=beta,
                    one_slope=one,
                    update=Adam() if rule == "adam" else Plain(),
                )
                sizes = {"blocks": 5, "samples": 64, "steps": 250, "seed": seed}
                record[name].append(final_value(opt, model, train, objective, **sizes))
        print(json.dumps(record), flush=True)


def updated_slopes():
    """SOX with slopes at u_t and a share of STORM's correction."""
    for name in ("contrastive", "one-way pauc"):
        work = WORKLOADS[name]()

        def train(scale, lr, beta, seed, work=work):
            model = work.make_model(seed)
            method = mars(scale).updated()
            opt = fcco.CompositionalOptimizer(
                model, work.objective, method, Adam(), lr=lr, alpha=0.5, beta=beta
            )
            sizes = {"blocks": work.blocks, "samples": 16, "steps": 400, "seed": seed}
            value = final_value(opt, model, work.train, work.objective, decay=True, **sizes)
            return work.risk(value)

        for scale in (0.0, 0.03, 0.1, 0.3, 1.0):
            settings = list(product((0.003, 0.01, 0.03), (0.1, 0.5)))
            best = min(settings, key=lambda setting: train(scale, *setting, 100))
            values = [train(scale, *best, seed) for seed in range(3)]
            record = {"workload": name, "scale": scale, "best": best, "values": values}
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"one": one_slope, "updated": updated_slopes}[sys.argv[1]]()
