"""What a step costs beside the bare network work it needs: time, and peak memory.

    make bench

*Step / bare*: against the forward and backward passes the method cannot do without, of the
network and of the objective's inner values; for single point, one forward pass that carries
tangents and the backward pass. *Step / network*: against those of the network alone. A step and
its bare work come right after one another in each of many rounds; given are the median of the
ratios and their quartiles. Torch's optimizers on the same passes stand beside them, for what
moving the weights takes at least. Memory is the peak beyond what was held before, and *kept* is
what the optimizer remembers, in copies of the weights.
"""

from functools import partial

import torch
from cases import own_samples, shared_batch
from memory import kept_bytes, peak_bytes
from networks import CNN, MLP, moved, resnet18
from tables import arguments, markdown, save
from timing import Spread, interleave, milliseconds, ratio
from work import Work

import fcco


def sox(params, objective, beta=0.5, **options):
    return fcco.SOX(params, objective, lr=1e-3, alpha=0.5, beta=beta, **options)


def msvrm(version, **choice):
    def build(params, objective, **options):
        settings = {"lr": 1e-3, "alpha": 0.5, "beta": 0.5} | choice | options
        return fcco.MSVRM(params, objective, version=version, **settings)

    return build


def adam(build):
    return lambda *args, **options: build(*args, update=fcco.updates.Adam(), **options)


METHODS = {
    # name: (optimizer, forward and backward passes, forward passes alone)
    "SOX": (sox, 1, 0),
    "SOX Adam": (adam(sox), 1, 0),
    "SOX Adam, beta auto": (partial(adam(sox), beta="auto"), 1, 0),
    "MSVRM v1": (msvrm(1), 1, 1),
    "MSVRM v2": (msvrm(2), 2, 0),
    "MSVRM v2 Adam": (adam(msvrm(2)), 2, 0),
    "MSVRM v3": (msvrm(3), 3, 0),
    "MSVRM v1 single point": (msvrm(1, single_point=True), None, None),
}
TORCH = {
    "torch SGD, momentum": lambda params: torch.optim.SGD(params, lr=1e-3, momentum=0.9),
    "torch Adam": lambda params: torch.optim.Adam(params, lr=1e-3),
}
COLUMNS = ("", "bare ms", "step / bare", "step / network", "peak MB", "peak / bare", "kept")


def settings(pixels, images, quick):
    """{name: (network, how to build its case, tasks, options)}."""
    result = {}
    for name, network in (("MLP", MLP), ("CNN", CNN)):
        for tasks in (10, 100):
            if quick and network is CNN and tasks == 100:
                continue
            result[f"{name}, 5 of {tasks} tasks, own samples"] = network, own_samples, tasks, {}
            result[f"{name}, {tasks} tasks, shared batch"] = network, shared_batch, tasks, {}
    few = {"blocks": 4, "samples": images}
    name = f"ResNet-18, {images} images of {pixels} pixels, 4 of 10 tasks"
    return result | {name: (resnet18(pixels), own_samples, 10, few)}


def ours(name, network, case):
    """The step and its bare work, and the optimizer."""
    build, pulled, looked = METHODS[name]
    objective, batch = case.objective, case.batch
    opt = build(network.parameters(), objective, buffers=network.buffers())
    if opt.snapshot_due:
        everything = own_samples(
            batch.inputs.shape[1:], case.outputs, case.outputs, case.outputs * 4
        )
        opt.snapshot(lambda: objective.inner(network, everything.batch))
    work = Work(network, case, whole=True)
    runs = {
        "step": lambda: opt.step(lambda: objective.inner(network, batch)),
        "bare": work.with_derivative() if pulled is None else work.repeated(pulled, looked),
    }
    if name == "SOX":
        runs["network"] = Work(network, case, whole=False).repeated(1)
    return runs, opt


def theirs(name, network, case):
    """The same passes with a torch optimizer."""
    opt = TORCH[name](network.parameters())
    weights = torch.randn_like(case.objective.inner(network, case.batch).values)

    def step():
        case.objective.inner(network, case.batch).values.backward(weights)
        opt.step()
        opt.zero_grad()

    return {"step": step, "bare": Work(network, case, whole=True).repeated(1)}, opt


def measure(setting, network, case, names, seconds, clock):
    groups, optimizers, networks = {}, {}, {}
    for name in names:
        torch.manual_seed(0)
        model = network.build(case.outputs)
        groups[name], optimizers[name] = (ours if name in METHODS else theirs)(name, model, case)
        networks[name] = model, [p.detach().clone() for p in model.parameters()]
    times = interleave(groups, seconds, clock=clock)
    rows = []
    for name, runs in groups.items():
        model, before = networks[name]
        assert moved(model, before), f"{name} did not move the weights"
        weights = sum(p.nbytes for p in model.parameters())
        peak = {run: peak_bytes(runs[run]) for run in ("step", "bare")}
        alone = ratio(times[name], "step", "network").json() if "network" in runs else None
        rows.append(
            {
                "setting": setting,
                "method": name,
                "bare_ms": milliseconds(times[name], "bare"),
                "to_bare": ratio(times[name], "step", "bare").json(),
                "to_network": alone,
                "peak_mb": peak["step"] / 1e6,
                "peak_to_bare": peak["step"] / peak["bare"],
                "kept_copies": kept_bytes(optimizers[name]) / weights,
            }
        )
    return rows


def cells(row):
    return (
        row["method"],
        f"{row['bare_ms']:.1f}",
        Spread(**row["to_bare"]),
        Spread(**row["to_network"]) if row["to_network"] else "",
        f"{row['peak_mb']:.1f}",
        f"{row['peak_to_bare']:.2f}",
        f"{row['kept_copies']:.1f}",
    )


def main():
    args = arguments(
        __doc__,
        pixels=(0, "side of the ResNet's images; default 16, quick 8"),
        images=(64, "the ResNet's batch"),
        only=("", "settings whose name holds this"),
        seconds=(0.0, "about how long each setting is measured; default 60 (MLP 20), quick 6"),
    )
    chosen = settings(args.pixels or (8 if args.quick else 16), args.images, args.quick)
    chosen = {name: setting for name, setting in chosen.items() if args.only in name}
    results = []
    for setting, (network, build, tasks, options) in chosen.items():
        torch.manual_seed(0)
        case = build(network.shape, tasks, **options)
        seconds = args.seconds or (6 if args.quick else 20 if network is MLP else 60)
        rows = measure(setting, network, case, [*METHODS, *TORCH], seconds, args.timer)
        print(f"\n{setting}\n\n{markdown(COLUMNS, map(cells, rows))}", flush=True)
        results += rows
    save(args, {"step_cost": results})


if __name__ == "__main__":
    main()
