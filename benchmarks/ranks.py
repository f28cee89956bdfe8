"""What a step exchanges between ranks, and how much faster two of them are than one.

    make bench

Every number is counted or timed inside real processes that talk through gloo: reductions and bytes
a step by a hook in DDP, rows a rank keeps, and the time of a step that shares 640 samples.
"""

import argparse
import json
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from networks import MLP
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

import fcco

TASKS, BLOCKS, SAMPLES = 1000, 20, 32
VERSIONS = {"sox": 0, "msvrm-v1": 1, "msvrm-v2": 2}


def build(version, model, objective):
    common = {"lr": 1e-3, "alpha": 0.5, "beta": 0.5}
    if version == 0:
        return fcco.SOX(model.parameters(), objective, **common)
    return fcco.MSVRM(model.parameters(), objective, version=version, **common)


def measure(rank, world, place, rounds):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}/meet", rank=rank, world_size=world)
    results = {}
    for name, version in VERSIONS.items():
        torch.manual_seed(0)
        network = MLP.build(TASKS)
        model = DistributedDataParallel(network)
        sent = []

        def counted(state, bucket, sent=sent):
            sent.append(bucket.buffer().nbytes)
            return allreduce_hook(state, bucket)

        model.register_comm_hook(None, counted)
        objective = fcco.objectives.MultiTaskAUC(torch.rand(2000, TASKS) < 0.3)
        opt = build(version, model, objective)
        share = opt.table.share
        blocks = share.start + torch.randperm(share.count)[: BLOCKS // world]
        uniform = torch.rand(len(blocks), SAMPLES, dtype=torch.float64)
        batch = objective.draw(blocks, uniform, uniform[0])
        batch = batch.filled(torch.randn(len(batch.inputs), *MLP.shape))
        times = []
        for _ in range(rounds + 3):
            sent.clear()
            dist.barrier()
            start = time.perf_counter()
            opt.step(lambda o=objective, m=model, b=batch: o.inner(m, b))
            times.append(time.perf_counter() - start)
        table = opt.table.buffers()
        rows = sum(buffer.nbytes for buffer in table if len(buffer) == share.count)
        results[name] = {
            "milliseconds": 1e3 * statistics.median(times[3:]),
            "reductions": len(sent),
            "megabytes reduced": sum(sent) / 1e6,
            "megabytes of gradient": sum(p.nbytes for p in network.parameters()) / 1e6,
            "table bytes a block": rows / share.count,
        }
    words = torch.zeros(5, dtype=torch.float64)
    times = []
    for _ in range(200):
        start = time.perf_counter()
        dist.all_reduce(words)
        times.append(time.perf_counter() - start)
    results["agreement"] = {"bytes": words.nbytes, "microseconds": 1e6 * statistics.median(times)}
    if rank == 0:
        with open(f"{place}/results.json", "w") as file:
            json.dump(results, file)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--output")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    found = {}
    for world in (1, 2):
        with tempfile.TemporaryDirectory() as place:
            mp.spawn(measure, (world, place, options.rounds), nprocs=world)
            with open(f"{place}/results.json") as file:
                found[world] = json.load(file)
    print(f"{BLOCKS} of {TASKS} tasks, {BLOCKS * SAMPLES} samples a step, MLP, gloo")
    print(
        "| method | reductions | MB reduced | MB of gradient | ms, 1 rank | ms, 2 ranks | ratio |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in VERSIONS:
        one, two = found[1][name], found[2][name]
        print(
            f"| {name} | {two['reductions']} | {two['megabytes reduced']:.2f} | "
            f"{two['megabytes of gradient']:.2f} | {one['milliseconds']:.1f} | "
            f"{two['milliseconds']:.1f} | {two['milliseconds'] / one['milliseconds']:.2f} |"
        )
    words = found[2]["agreement"]
    print(f"agreement: {words['bytes']} bytes, {words['microseconds']:.0f} microseconds")
    if options.output:
        with open(options.output, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
