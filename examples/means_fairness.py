"""A fairness penalty beside cross-entropy, at batch size 4: for those who must keep batches small.

The mean scores of two groups should be equal. In a batch of 4 their gap is mostly chance, often
only one group is there, and a penalty on it makes all scores alike. ParityLoss takes the gap of the
whole data set.

One line changes against the ordinary program: the one that builds the penalty.

pip install fcco
python examples/means_fairness.py [--quick]
"""

import sys

import torch
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

import fcco

epochs = 1 if "--quick" in sys.argv else 6
WEIGHT, N = 1.0, 1000


def people():
    """Two features depend on the group, and the label depends on one of them."""
    group = (torch.rand(N) < 0.3).long()
    x = torch.randn(N, 6)
    x[:, 0] += 1.2 * group
    x[:, 1] -= 0.8 * group
    return x, (torch.rand(N) < (x[:, 0] + x[:, 2] - x[:, 3] - 0.5).sigmoid()).float(), group


def batch_gap(scores, group):
    """The gap of the mean scores; 0 if a group is missing."""
    if len(group.unique()) < 2:
        return 0 * scores.sum()
    return (scores[group == 1].mean() - scores[group == 0].mean()).abs()


def train(name, penalty):
    torch.manual_seed(0)
    x, y, group = people()
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for i in torch.randperm(N).split(4):
            logits = model(x[i])[:, 0]
            loss = cross_entropy(logits, y[i]) + WEIGHT * penalty(logits.sigmoid(), group[i])
            opt.zero_grad()
            loss.backward()
            opt.step()
    with torch.no_grad():
        logits = model(x)[:, 0]
    gap, decided = batch_gap(logits.sigmoid(), group), batch_gap((logits > 0).float(), group)
    objective = cross_entropy(logits, y) + WEIGHT * gap
    accuracy = ((logits > 0) == y).float().mean()
    numbers = f"accuracy {accuracy:.3f}, gap {gap:.3f}, gap of decisions {decided:.3f}"
    print(f"{name:<16} objective {objective:.3f}, {numbers}")


train("no penalty", lambda scores, group: 0)
train("gap of the batch", batch_gap)
train("ParityLoss", fcco.losses.ParityLoss(2))  # the line that changes
