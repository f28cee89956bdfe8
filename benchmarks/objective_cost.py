"""What an objective costs beside the network: everything but its forward and backward pass.

    make bench

Two costs are timed in turn with the bare forward and backward pass of a small MLP
(784-256-256-outputs, 640 samples), and ratios of medians are reported. *Objective*: scores, means
or pairs, slopes, and the gradient back to the network's outputs. *Step*: all that and the
optimizer, with given outputs plus a number in the place of the network.
"""

import argparse
import statistics
import time

import torch
from torch import nn

import fcco
from fcco import data, objectives
from fcco.rows import rows_of

SAMPLES, FEATURES = 640, 784


def network(outputs):
    return nn.Sequential(
        nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, outputs)
    )


def multi_task(tasks, blocks=None):
    """All tasks (or some) on the same 640 samples, as in a multi-label batch."""
    labels = torch.rand(SAMPLES, tasks) < 0.3
    dataset = data.TaskData(torch.randn(SAMPLES, tasks), labels)
    chosen = None if blocks is None else torch.randperm(tasks)[:blocks]
    return objectives.MultiTaskAUC(tasks), dataset.batch(torch.arange(SAMPLES), chosen), tasks


def own_samples(tasks, blocks):
    """Each task's own samples: five tasks of 128."""
    inputs = torch.randn(SAMPLES, tasks)
    batch = fcco.TaskBatch(torch.arange(blocks), inputs, positives=SAMPLES // blocks // 2)
    return objectives.MultiTaskAUC(tasks), batch, tasks


def anchored(objective, dataset, anchors, outputs=1):
    sampler = data.BlockSampler(
        dataset, blocks_per_step=anchors, samples_per_block=SAMPLES - anchors, num_steps=1
    )
    return objective, dataset.collate(sampler.at(1)), outputs


def average_precision(tasks, anchors):
    inputs = torch.randn(5000, tasks)
    labels = torch.rand(5000, tasks) < 0.1
    labels = labels[:, 0] if tasks == 1 else labels
    counts = labels.sum(0)
    dataset = data.AnchorData.average_precision(inputs, labels)
    return anchored(objectives.AveragePrecision(counts, 5000), dataset, anchors, tasks)


def partial_auc(anchors):
    labels = torch.rand(5000) < 0.1
    dataset = data.AnchorData.positives(torch.randn(5000, 1), labels)
    objective = objectives.OneWayPartialAUC(dataset.num_blocks, dataset.num_partners)
    return anchored(objective, dataset, anchors)


def lists(queries, length):
    grades = torch.randint(5, (queries * length,))
    lengths = torch.full((queries,), length)
    dataset = data.ListData(torch.randn(queries * length, 1), grades, lengths)
    sampler = data.BlockSampler(
        dataset, blocks_per_step=queries, samples_per_block=length - 1, num_steps=1
    )
    return objectives.NDCG(grades, lengths), dataset.collate(sampler.at(1)), 1


CASES = {
    "AUC, 10 tasks, shared batch": lambda: multi_task(10),
    "AUC, 100 tasks, shared batch": lambda: multi_task(100),
    "AUC, 50 of 100 tasks, shared batch": lambda: multi_task(100, 50),
    "AUC, 5 of 100 tasks, own samples": lambda: own_samples(100, 5),
    "AP, 64 positives": lambda: average_precision(1, 64),
    "AP, 320 positives": lambda: average_precision(1, 320),
    "mAP, 100 labels, 64 positives": lambda: average_precision(100, 64),
    "partial AUC, 64 positives": lambda: partial_auc(64),
    "NDCG, 32 x 20": lambda: lists(32, 20),
}


def measure(case, rounds):
    torch.manual_seed(0)
    objective, batch, outputs = case()
    net, inputs = network(outputs), torch.randn(SAMPLES, FEATURES)
    criterion = nn.BCEWithLogitsLoss()
    targets = torch.rand(SAMPLES, outputs).round()
    # A number added to given outputs stands for the network, so that a step is all but its work.
    shift = nn.Parameter(torch.zeros(()))
    opt = fcco.SOX([shift], objective, lr=0.0, alpha=0.5, beta=0.5)

    def step():
        opt.step(lambda: objective.inner(lambda inputs: inputs + shift, batch))

    outputs = batch.inputs.clone().requires_grad_()
    form = rows_of(objective)

    def alone():
        probe = objective.inner(lambda inputs: outputs, batch)
        rows = form.of(probe, probe.values.dtype)
        slopes = form.pull(form.project(rows, probe.blocks), rows, probe.blocks, supported=True)
        probe.values.backward(slopes)
        outputs.grad = None

    def bare():
        criterion(net(inputs), targets).backward()
        net.zero_grad()

    times = {alone: [], step: [], bare: []}
    for k in range(rounds + 3):
        for run in times:
            start = time.perf_counter()
            run()
            if k >= 3:
                times[run].append(time.perf_counter() - start)
    return [statistics.median(seconds) for seconds in times.values()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(f"{'':38} {'MLP ms':>7} {'objective':>10} {'step':>6}")
    for name, case in CASES.items():
        alone, step, bare = measure(case, rounds)
        print(f"{name:38} {bare * 1e3:7.2f} {alone / bare:10.0%} {step / bare:6.0%}")


if __name__ == "__main__":
    main()
