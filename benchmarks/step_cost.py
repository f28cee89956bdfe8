"""What a step costs beside the bare network work it needs; ratios from one interleaved run.

    make bench

Each optimizer's step is timed against a loop that does only the forward and backward passes the
method cannot do without. Both are run in turn, many times over, and the ratio of their medians is
reported: on a shared machine absolute times mean little.
"""

import argparse
import statistics
import time

import torch
from torch import nn

import fcco
import fcco.testing

TASKS, BLOCKS, SAMPLES = 10, 5, 128


def mlp():
    return nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, TASKS)
    ), (784,)


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(512, TASKS),
    ), (1, 28, 28)


METHODS = {
    # name: (optimizer, forwards + backwards, forwards alone)
    "sox": (lambda p, o: fcco.SOX(p, o, lr=1e-3, alpha=0.5, beta=0.5), 1, 0),
    "msvrm-v1": (lambda p, o: msvrm(p, o, 1), 1, 1),
    "msvrm-v2": (lambda p, o: msvrm(p, o, 2), 2, 0),
    "msvrm-v2 adam": (lambda p, o: msvrm(p, o, 2, update=fcco.updates.Adam()), 2, 0),
    "msvrm-v3": (lambda p, o: msvrm(p, o, 3), 3, 0),
}


def msvrm(params, objective, version, **options):
    return fcco.MSVRM(params, objective, version=version, lr=1e-3, alpha=0.5, beta=0.5, **options)


def measure(build_model, build_optimizer, with_gradient, without, rounds):
    torch.manual_seed(0)
    model, shape = build_model()
    objective = fcco.objectives.MultiTaskAUC(TASKS)
    blocks = torch.randperm(TASKS)[:BLOCKS]
    batch = fcco.TaskBatch(blocks, torch.randn(BLOCKS * SAMPLES, *shape), SAMPLES // 2)
    opt = build_optimizer(model.parameters(), objective)
    if opt.snapshot_due:
        full = fcco.TaskBatch(torch.arange(TASKS), torch.randn(TASKS * 8, *shape), 4)
        opt.snapshot(lambda: objective.inner(model, full))
    weights = torch.randn(BLOCKS, 4)

    def ours():
        opt.step(lambda: objective.inner(model, batch))

    def bare():
        for _ in range(with_gradient):
            (objective.inner(model, batch).values * weights).sum().backward()
        model.zero_grad()
        with torch.no_grad():
            for _ in range(without):
                objective.inner(model, batch)

    times = {ours: [], bare: []}
    for k in range(rounds + 3):
        for run in (ours, bare):
            start = time.perf_counter()
            run()
            if k >= 3:
                times[run].append(time.perf_counter() - start)
    return (statistics.median(times[f]) for f in (ours, bare))


def flat_in_m(rounds):
    """Step time against the number of blocks, a tiny model so that the table would show."""
    print("\nstep time against m (v2, gamma by age), relative to m = 1e3")
    runs = {}
    for m in (10**3, 10**5, 10**7):
        problem = fcco.testing.Toy(1000, 1, dtype=torch.float32)
        problem.num_blocks = m
        model = fcco.testing.make_model("network", 1).float()
        opt = msvrm(model.parameters(), problem, 2)

        def step(model=model, opt=opt, problem=problem, m=m):
            rows = torch.randint(1000, (8,))
            blocks = rows + 1000 * torch.randint(m // 1000, (8,))
            samples = torch.zeros((8, 1), dtype=torch.int64)
            if len(blocks.unique()) == 8:
                opt.step(
                    lambda: fcco.Probe(blocks, problem.values(model, rows, samples)),
                )

        problem.outer = lambda u, blocks: u.square().sum(1)
        runs[m] = (step, [])
    for _ in range(rounds * 5):
        for step, times in runs.values():
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
    base = statistics.median(runs[10**3][1])
    for m, (_, times) in runs.items():
        print(f"  m = {m:.0e}: {statistics.median(times) / base:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(f"batch {BLOCKS * SAMPLES}, {TASKS} tasks; step / bare network work (bare in ms)")
    for name, (build, with_gradient, without) in METHODS.items():
        line = f"  {name:<14}"
        for model in (mlp, cnn):
            ours, bare = measure(model, build, with_gradient, without, rounds)
            line += f"   {model.__name__} {ours / bare:.3f} ({bare * 1e3:.1f})"
        print(line, flush=True)
    flat_in_m(rounds)


if __name__ == "__main__":
    main()
