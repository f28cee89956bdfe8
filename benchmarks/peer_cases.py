"""The same problem for a peer and for fcco: one network, one batch, two training steps.

LibAUC's optimizers run as their documentation shows them, in their SGD mode, which is the
cheaper one. It may not be there, so it is imported only where it is used.
"""

from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import cases
import torch
from torch import nn

import fcco
from fcco import objectives

SAMPLES = cases.SAMPLES
RATE = 1e-3


@dataclass
class PeerCase:
    """``peer(network)`` and every ``own[way](network)`` give a step."""

    inputs: torch.Tensor
    outputs: int
    peer: Any
    own: dict

    def steps(self):
        there = self.peer is not None and find_spec("libauc") is not None
        return ({"LibAUC": self.peer} if there else {}) | self.own


def sox(case, network, **options):
    opt = fcco.SOX(network.parameters(), case.objective, lr=RATE, alpha=0.5, beta=0.5, **options)
    return lambda: opt.step(lambda: case.objective.inner(network, case.batch))


def libauc_step(network, inputs, loss, optimizer):
    """A step in LibAUC's manner; ``loss`` takes the network's outputs."""

    def step():
        value = loss(network(inputs))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()

    return step


def auc(shape, *, tasks, blocks=None, version="v1"):
    case = cases.shared_batch(shape, tasks, blocks)
    everything = torch.zeros(SAMPLES, tasks)
    everything[:, case.batch.blocks] = case.objective.labels.positive[:, case.batch.blocks].float()
    chosen = [] if blocks is None else case.batch.blocks

    def peer(network):
        from libauc.losses import MultiLabelAUCMLoss
        from libauc.optimizers import PESG

        loss = MultiLabelAUCMLoss(num_labels=tasks, version=version)
        opt = PESG(network.parameters(), loss_fn=loss, lr=RATE, verbose=False)
        take = lambda outputs: loss(torch.sigmoid(outputs), everything, task_id=chosen)  # noqa: E731
        return libauc_step(network, case.batch.inputs, take, opt)

    return PeerCase(case.batch.inputs, tasks, peer, {"same batch": partial(sox, case)})


def average_precision(shape, *, tasks, positives):
    """``positives`` of each task among the samples; every one is an anchor against all samples."""
    labels = torch.zeros(SAMPLES, tasks)
    for task in range(tasks):
        labels[torch.randperm(SAMPLES)[:positives], task] = 1
    objective = objectives.AveragePrecision(labels)
    batch = objective.batch(torch.randn(SAMPLES, *shape), torch.arange(SAMPLES))
    same = cases.Case(objective, batch, tasks)
    drawn = cases.average_precision(shape, tasks, positives)

    def peer(network):
        from libauc.losses import APLoss, mAPLoss
        from libauc.optimizers import SOAP

        if tasks == 1:
            loss = APLoss(data_len=SAMPLES)
        else:
            loss = mAPLoss(data_len=SAMPLES, num_labels=tasks)
        index = torch.arange(SAMPLES)
        opt = SOAP(network.parameters(), lr=RATE, mode="sgd", verbose=False)
        take = lambda outputs: loss(torch.sigmoid(outputs), labels, index)  # noqa: E731
        return libauc_step(network, batch.inputs, take, opt)

    own = {
        f"same pairs ({len(batch)} anchors)": partial(sox, same),
        f"as drawn ({positives} anchors)": partial(sox, drawn),
    }
    return PeerCase(batch.inputs, tasks, peer, own)


def ndcg(shape, *, queries, length, relevant):
    """The first ``relevant`` of each list's items against the whole list."""
    grades = torch.zeros(queries, length, dtype=torch.int64)
    grades[:, :relevant] = torch.randint(1, 5, (queries, relevant))
    lengths = torch.full((queries,), length)
    items = torch.arange(queries * length).view(queries, length)
    objective = objectives.NDCG(grades.flatten(), lengths)
    batch = objective.batch(torch.randn(queries * length, *shape), items.flatten())
    same = cases.Case(objective, batch, 1)
    drawn = cases.ndcg(shape, queries, length)
    gains = (2.0 ** grades.sort(1, descending=True).values - 1) / torch.log2(
        torch.arange(length) + 2.0
    )
    lists = {
        "rating": grades,
        "user_id": torch.arange(queries),
        "num_pos_items": torch.full((queries,), relevant),
        "ideal_dcg": gains.sum(1),
        "user_item_id": items,
    }

    def peer(network):
        from libauc.losses import NDCGLoss
        from libauc.optimizers import SONG

        loss = NDCGLoss(
            N=queries * length, num_user=queries, num_item=length, num_pos=relevant, gamma0=0.5
        )
        opt = SONG(network.parameters(), lr=RATE)
        take = lambda outputs: loss(outputs.view(queries, length), lists)  # noqa: E731
        return libauc_step(network, batch.inputs, take, opt)

    own = {
        f"same pairs ({queries * relevant} anchors)": partial(sox, same),
        f"as drawn ({queries} anchors)": partial(sox, drawn),
    }
    return PeerCase(batch.inputs, 1, peer, own)


def cross_entropy(shape, *, tasks):
    """Torch's Adam on cross-entropy, and fcco's Adam on AUC."""
    case = cases.shared_batch(shape, tasks)
    targets = case.objective.labels.positive.float()

    def adam(network):
        opt, criterion = torch.optim.Adam(network.parameters(), lr=RATE), nn.BCEWithLogitsLoss()
        return libauc_step(network, case.batch.inputs, lambda out: criterion(out, targets), opt)

    own = {
        "BCE + torch Adam": adam,
        "AUC + SOX Adam": partial(sox, case, update=fcco.updates.Adam()),
    }
    return PeerCase(case.batch.inputs, tasks, None, own)


CASES = {
    "10 tasks": partial(cross_entropy, tasks=10),
    "AUC, 10 tasks (AUCM v1 + PESG)": partial(auc, tasks=10),
    "AUC, 10 tasks (AUCM v2 + PESG)": partial(auc, tasks=10, version="v2"),
    "AUC, 5 of 10 tasks (AUCM v2 + PESG)": partial(auc, tasks=10, blocks=5, version="v2"),
    "AUC, 100 tasks (AUCM v1 + PESG)": partial(auc, tasks=100),
    "AUC, 100 tasks (AUCM v2 + PESG)": partial(auc, tasks=100, version="v2"),
    "AUC, 50 of 100 tasks (AUCM v2 + PESG)": partial(auc, tasks=100, blocks=50, version="v2"),
    "AP, 64 positives (AP + SOAP)": partial(average_precision, tasks=1, positives=64),
    "AP, 320 positives (AP + SOAP)": partial(average_precision, tasks=1, positives=320),
    "mAP, 10 labels (mAP + SOAP)": partial(average_precision, tasks=10, positives=64),
    "mAP, 100 labels (mAP + SOAP)": partial(average_precision, tasks=100, positives=64),
    "NDCG, 32 x 20 (NDCG + SONG)": partial(ndcg, queries=32, length=20, relevant=10),
}
