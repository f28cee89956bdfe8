"""A balance loss for a mixture of experts, with activation checkpointing: for small batches.

The balance E sum_i f_i P_i is a function of means: f_i is the share of the samples that go to
expert i, P_i its mean gate. The balance of a batch of 8 asks every batch to use all experts alike;
that of the data set lets experts specialise. The loss is called inside the layer, which the
backward pass computes again: the table moves once per step all the same. Under torch.distributed
a step sees the batches of all ranks.

One line changes against the ordinary program: the one that builds the balance loss. What is printed
is the mean over three seeds.

pip install fcco[sklearn]
python examples/means_experts.py [--quick]
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy, one_hot
from torch.utils.checkpoint import checkpoint

import fcco

epochs, seeds = (1, 1) if "--quick" in sys.argv else (5, 3)
E, WEIGHT = 8, 0.5
x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
x = x.float() / 16
torch.manual_seed(0)
train_rows, test_rows = torch.randperm(len(x)).split([1200, len(x) - 1200])


def balance(u):  # the means of f and P
    return E * (u[..., :E] * u[..., E:]).sum(-1)


def batch_balance(statistics):
    return balance(statistics.mean(0))


class Experts(torch.nn.Module):
    """Linear experts; each sample goes to the one with the largest gate."""

    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(64, E)
        self.experts = torch.nn.Parameter(torch.randn(E, 64, 10) / 8)

    def forward(self, x, criterion):
        gate = self.gate(x).softmax(1)
        weight, chosen = gate.max(1)
        outputs = weight.unsqueeze(1) * (x.unsqueeze(1) @ self.experts[chosen]).squeeze(1)
        return outputs, criterion(torch.cat([one_hot(chosen, E), gate], dim=1))


def train(criterion, seed, recompute=True):
    torch.manual_seed(seed)
    layer = Experts()
    opt = torch.optim.AdamW(layer.parameters(), lr=1e-2)
    decay = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.0, epochs * len(train_rows) // 8)
    for _ in range(epochs):
        for i in train_rows[torch.randperm(len(train_rows))].split(8):
            if recompute:
                outputs, uneven = checkpoint(layer, x[i], criterion, use_reentrant=False)
            else:
                outputs, uneven = layer(x[i], criterion)
            loss = cross_entropy(outputs, y[i]) + WEIGHT * uneven
            opt.zero_grad()
            loss.backward()
            opt.step()
            decay.step()
    with torch.no_grad():
        outputs, uneven = layer(x[train_rows], batch_balance)  # of all samples at once
        right = layer(x[test_rows], batch_balance)[0].argmax(1) == y[test_rows]
    objective = cross_entropy(outputs, y[train_rows]) + WEIGHT * uneven
    return torch.stack([objective, uneven, right.float().mean()])


def report(name, new_criterion):
    found = torch.stack([train(new_criterion(), seed) for seed in range(seeds)]).mean(0)
    objective, uneven, accuracy = found.tolist()
    numbers = f"balance of the training set {uneven:.3f}, test accuracy {accuracy:.3f}"
    print(f"{name:<20} objective {objective:.3f}, {numbers}")


report("no balance", lambda: lambda statistics: 0)
report("balance of the batch", lambda: batch_balance)
report("MeansLoss", lambda: fcco.losses.MeansLoss(balance, 2 * E))  # the line that changes

tables = [fcco.losses.MeansLoss(balance, 2 * E) for _ in range(2)]
ends = [train(table, 0, again) for table, again in zip(tables, (True, False), strict=True)]
assert ends[0].equal(ends[1])
assert tables[0].table.rows.equal(tables[1].table.rows), "recomputation changes nothing"
