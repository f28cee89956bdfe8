"""Objectives with a batch of theirs, as the data sets of the library build it."""

from dataclasses import dataclass, replace

import torch

import fcco
from fcco import data, objectives

SAMPLES = 640
POPULATION = 5000


@dataclass(frozen=True)
class Case:
    objective: fcco.Objective
    batch: fcco.Batch
    outputs: int


def shared_batch(shape, tasks, blocks=None, samples=SAMPLES):
    """All tasks (or some) on the same samples, as in a multi-label batch."""
    dataset = data.TaskData(torch.randn(samples, *shape), torch.rand(samples, tasks) < 0.3)
    chosen = None if blocks is None else torch.randperm(tasks)[:blocks].sort().values
    batch = dataset.batch(torch.arange(samples), chosen)
    return Case(objectives.MultiTaskAUC(tasks), batch, tasks)


def own_samples(shape, tasks, blocks=5, samples=SAMPLES):
    """Each task's own samples, half of them positives: five tasks of 128, say."""
    chosen = torch.randperm(tasks)[:blocks]
    batch = fcco.TaskBatch(chosen, torch.randn(samples, *shape), samples // blocks // 2)
    return Case(objectives.MultiTaskAUC(tasks), batch, tasks)


def average_precision(shape, tasks, anchors):
    """Some positives, of all tasks together, against the rest of the batch."""
    labels = torch.rand(POPULATION, tasks) < 0.1
    counts = labels.sum(0)
    labels = labels[:, 0] if tasks == 1 else labels
    dataset = data.AnchorData.average_precision(_placeholders(shape), labels)
    objective = objectives.AveragePrecision(counts, POPULATION)
    return Case(objective, _drawn(dataset, anchors, SAMPLES - anchors, shape), tasks)


def partial_auc(shape, anchors):
    labels = torch.rand(POPULATION) < 0.1
    dataset = data.AnchorData.positives(_placeholders(shape), labels)
    objective = objectives.OneWayPartialAUC(dataset.num_blocks, dataset.num_partners)
    return Case(objective, _drawn(dataset, anchors, SAMPLES - anchors, shape), 1)


def ndcg(shape, queries, length):
    """One item of each list against others of the list."""
    grades = torch.randint(5, (queries * length,))
    lengths = torch.full((queries,), length)
    dataset = data.ListData(torch.zeros(queries * length, *shape), grades, lengths)
    batch = _drawn(dataset, queries, length - 1, shape)
    return Case(objectives.NDCG(grades, lengths), batch, 1)


def _placeholders(shape):
    return torch.zeros(1).expand(POPULATION, *shape)


def _drawn(dataset, blocks, samples, shape):
    """One batch as its sampler draws it, with fresh inputs."""
    sampler = data.BlockSampler(
        dataset, blocks_per_step=blocks, samples_per_block=samples, num_steps=1
    )
    batch = dataset.collate(sampler.at(1))
    return replace(batch, inputs=torch.randn(len(batch.inputs), *shape))
