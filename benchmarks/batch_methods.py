"""The methods of ``batch_one.py``: how a network is trained in batches of B samples.

Every method takes steps of torch's Adam with a step size that falls linearly to 0, and sees every
sample once in a pass. (LibAUC's balanced sampler repeats positives until the negatives are
through; its AUC margin loss is a saddle point and needs its own optimizer, PESG.)
"""

import sys
import types
import warnings
from dataclasses import replace

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from fcco.losses import NDCGLoss

TOGETHER = 64
"""Samples of a step with gradient accumulation."""


def shuffled(problem, batch):
    return torch.randperm(len(problem.train.inputs)).split(batch)


def balanced(problem, batch):
    """LibAUC's DualSampler: half of a batch are positives."""
    sampler = _dual_sampler()(
        dataset=None,
        batch_size=batch,
        labels=problem.train.known[0].numpy(),
        sampling_rate=0.5,
        random_seed=int(torch.randint(2**31, ())),
    )
    return torch.tensor(list(sampler)).split(batch)


def by_list(problem, batch):
    """Batches that never mix lists: B items of one, drawn at random."""
    parts, start = [], 0
    for length in problem.train.known[1].tolist():
        parts += (start + torch.randperm(length)).split(batch)
        start += length
    return [parts[k] for k in torch.randperm(len(parts)).tolist()]


def descend(problem, network, epochs, loss, lr, every=1):
    """Adam on ``loss(scores, index)``; None: there is nothing to learn from this batch."""
    optimizer = torch.optim.Adam(network.parameters(), lr, fused=True)
    steps, x = [index for epoch in epochs for index in epoch], problem.train.inputs
    for step, index in enumerate(steps):
        optimizer.param_groups[0]["lr"] = lr * (1 - step / len(steps))
        value = loss(network(x[index]), index)
        if value is not None:
            value.backward()
        if (step + 1) % every == 0:
            optimizer.step()
            optimizer.zero_grad()


def table(problem, network, batch, lr):
    """fcco's loss: one line of an ordinary loop."""
    criterion = problem.criterion(*problem.train.known)
    epochs = (shuffled(problem, batch) for _ in range(problem.passes))
    descend(problem, network, epochs, criterion, lr)


def table_balanced(problem, network, batch, lr):
    """The same with as many positives as negatives, drawn with replacement, and their weights."""
    criterion, labels = problem.criterion(*problem.train.known), problem.train.known[0]
    chance = torch.stack([(labels == 0) / (labels == 0).sum(), labels / labels.sum()]).mean(0)
    weight = 1 / (len(labels) * chance)
    draws = (chance.multinomial(len(labels), replacement=True) for _ in range(problem.passes))

    def loss(scores, index):
        return criterion(scores, index, weight[index])

    descend(problem, network, (rows.split(batch) for rows in draws), loss, lr)


def in_batch(problem, network, batch, lr, draw=shuffled, every=1):
    """The same loss of the batch alone."""
    known = problem.train.known
    if problem.criterion is NDCGLoss:
        return lists_in_batch(problem, network, batch, lr, draw)

    def loss(scores, index):
        mine = [part[index] for part in known]
        if not comparable(*mine):
            return None
        return problem.criterion(*mine).exact(scores)

    epochs = (draw(problem, batch) for _ in range(problem.passes))
    return descend(problem, network, epochs, loss, lr, every)


def comparable(first, second=None):
    """Whether a batch has a gradient: an event with others at risk, or both classes."""
    if second is None:
        return len(first.unique()) == 2
    return (second.any() and first[second].min() < first.max()) or second.sum() > 1


def lists_in_batch(problem, network, batch, lr, draw):
    """NDCG of the items of a batch, list by list."""
    grades, lengths = problem.train.known
    owner = torch.repeat_interleave(lengths)

    def loss(scores, index):
        order = owner[index].argsort(stable=True)
        mine, sizes = grades[index[order]], owner[index].unique(return_counts=True)[1]
        if not (mine > 0).any() or sizes.max() == 1:
            return None
        return problem.criterion(mine, sizes).exact(scores[order])

    epochs = (draw(problem, batch) for _ in range(problem.passes))
    return descend(problem, network, epochs, loss, lr)


def accumulated(problem, network, batch, lr):
    """Gradients of the loss of each batch, added up over 64 samples."""
    in_batch(problem, network, batch, lr * (TOGETHER / batch) ** 0.5, every=TOGETHER // batch)


def momentum(problem, network, batch, lr, bank=256):
    """torchsurv's Momentum: a bank of scores of a slow copy of the network, which is the result."""
    from torchsurv.loss.cox import neg_partial_log_likelihood
    from torchsurv.loss.momentum import Momentum

    times, events = problem.train.known
    steps = -(-len(times) // batch) * problem.passes
    rate = min(0.999, 1 - 10 / steps)  # its default, or as slow as the run allows
    both = Momentum(network, neg_partial_log_likelihood, batch, max(1, bank // batch), rate)

    def loss(x, index):
        with warnings.catch_warnings(action="ignore"):
            return both(x, events[index], times[index])

    optimizer = torch.optim.Adam(both.online.parameters(), lr, fused=True)
    # A smaller batch would leave scores of the one before, whose graph is gone, among its own.
    epochs = [shuffled(problem, batch) for _ in range(problem.passes)]
    rows = [index for epoch in epochs for index in epoch if len(index) == batch]
    for step, index in enumerate(rows):
        optimizer.param_groups[0]["lr"] = lr * (1 - step / len(rows))
        optimizer.zero_grad()
        loss(problem.train.inputs[index], index).backward()
        optimizer.step()
    network.load_state_dict(both.target.state_dict())


def cross_entropy(problem, network, batch, lr, draw=shuffled):
    labels = problem.train.known[0].float()
    epochs = (draw(problem, batch) for _ in range(problem.passes))

    def loss(scores, index):
        return binary_cross_entropy_with_logits(scores[:, 0], labels[index])

    descend(problem, network, epochs, loss, lr)


def libauc_ap(problem, network, batch, lr):
    """LibAUC's APLoss (SOAP) with its DualSampler, on scores through a sigmoid as it asks for."""
    from libauc.losses import APLoss

    labels = problem.train.known[0]
    criterion = APLoss(len(labels))
    epochs = (balanced(problem, batch) for _ in range(problem.passes))

    def loss(scores, index):
        return criterion(torch.sigmoid(scores), labels[index], index)

    descend(problem, network, epochs, loss, lr)


def libauc_auc(problem, network, batch, lr):
    """LibAUC's AUCMLoss (version 2) with PESG and its DualSampler; PESG's step sizes are larger."""
    from libauc.losses import AUCMLoss
    from libauc.optimizers import PESG

    criterion, labels = AUCMLoss(version="v2"), problem.train.known[0]
    first = 30 * lr
    optimizer = PESG(network.parameters(), loss_fn=criterion, lr=first, verbose=False)
    rows = [index for _ in range(problem.passes) for index in balanced(problem, batch)]
    for step, index in enumerate(rows):
        for group in optimizer.param_groups:
            group["lr"] = first * (1 - step / len(rows))
        value = criterion(torch.sigmoid(network(problem.train.inputs[index])), labels[index])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()


def _dual_sampler():
    """Its module imports torchvision for another sampler's sake."""
    missing = "torchvision" not in sys.modules
    if missing:
        sys.modules["torchvision"] = types.ModuleType("torchvision")
    try:
        from libauc.sampler import DualSampler
    finally:
        if missing:
            del sys.modules["torchvision"]
    return DualSampler


METHODS = {
    "table": table,
    "table, balanced": table_balanced,
    "in-batch": in_batch,
    "in-batch, balanced": lambda *args: in_batch(*args, draw=balanced),
    "in-batch, by list": lambda *args: in_batch(*args, draw=by_list),
    "in-batch, 5x the passes": lambda problem, *args: in_batch(
        replace(problem, passes=5 * problem.passes), *args
    ),
    "accumulated": accumulated,
    "Momentum": momentum,
    "Momentum, bank of 10": lambda *args: momentum(*args, bank=10),
    "cross-entropy": cross_entropy,
    "cross-entropy, balanced": lambda *args: cross_entropy(*args, draw=balanced),
    "LibAUC": libauc_ap,
    "LibAUC AUCM": libauc_auc,
}
