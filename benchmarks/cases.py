"""Objectives with a batch of theirs, as the library draws it."""

from dataclasses import dataclass, replace

import torch

import fcco
from fcco import objectives
from fcco.data import BlockSampler

SAMPLES = 640
POPULATION = 5000


@dataclass(frozen=True)
class Case:
    objective: fcco.Objective
    batch: fcco.Batch
    outputs: int


def shared_batch(shape, tasks, blocks=None, samples=SAMPLES):
    """All tasks (or some) on the same samples, as in a multi-label batch."""
    objective = objectives.MultiTaskAUC(torch.rand(samples, tasks) < 0.3)
    batch = objective.batch(torch.randn(samples, *shape), torch.arange(samples))
    if blocks is not None:
        chosen = torch.randperm(tasks)[:blocks].sort().values
        weights = batch.weights[:, chosen]
        batch = replace(batch, blocks=chosen, columns=chosen, weights=weights)
    return Case(objective, batch, tasks)


def own_samples(shape, tasks, blocks=5, samples=SAMPLES):
    """Each task's own samples, half of them positives: five tasks of 128, say."""
    objective = objectives.MultiTaskAUC(torch.rand(POPULATION, tasks) < 0.3)
    return Case(objective, _drawn(objective, blocks, samples // blocks, shape), tasks)


def average_precision(shape, tasks, anchors):
    """Some positives, of all tasks together, against the rest of the batch."""
    objective = objectives.AveragePrecision(torch.rand(POPULATION, tasks) < 0.1)
    return Case(objective, _drawn(objective, anchors, SAMPLES - anchors, shape), tasks)


def partial_auc(shape, anchors):
    objective = objectives.PartialAUC(torch.rand(POPULATION) < 0.1, temperature=1.0)
    return Case(objective, _drawn(objective, anchors, SAMPLES - anchors, shape), 1)


def ndcg(shape, queries, length):
    """One item of each list against others of the list."""
    grades = torch.randint(5, (queries * length,))
    objective = objectives.NDCG(grades, torch.full((queries,), length))
    return Case(objective, _drawn(objective, queries, length - 1, shape), 1)


def _drawn(objective, blocks, samples, shape):
    """One batch as a loader draws it, with random inputs."""
    sampler = BlockSampler(
        objective, blocks_per_step=blocks, samples_per_block=samples, num_steps=1
    )
    batch = sampler.at(1)
    return batch.filled(torch.randn(len(batch.inputs), *shape))
