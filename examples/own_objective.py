"""An objective of one's own: group DRO on digits, with the hardest digits weighing most.

python examples/own_objective.py
"""

import torch

import fcco


class GroupDRO(fcco.Objective):
    """KL-regularised group DRO: block i is a group, g_i its mean loss, f_i(u) = exp(u / T)."""

    inner_dim = 1

    def __init__(self, num_groups, temperature=1.0):
        self.num_blocks, self.temperature = num_groups, temperature

    def inner(self, model, batch):
        groups, x, y = batch
        losses = torch.nn.functional.cross_entropy(
            model(x.flatten(0, 1)), y.flatten(), reduction="none"
        )
        values = losses.view(y.shape).mean(1, keepdim=True)
        return fcco.Probe(groups, values, samples=y.shape[1])

    def outer(self, u, blocks):
        return torch.exp(u[:, 0] / self.temperature)

    def feasible(self, u, blocks):
        return u.clamp(0, 10)  # losses are not negative, and exp must not overflow


torch.manual_seed(0)
(x, y), (x_test, y_test) = fcco.data.load_digits()
members = [(y == k).nonzero().flatten() for k in range(10)]
model = torch.nn.Linear(64, 10)
opt = fcco.SOX(
    model.parameters(), GroupDRO(10), lr=0.003, alpha=0.1, beta=0.5, update=fcco.updates.Adam()
)

for step in range(600):
    groups = torch.randperm(10)[:3]
    rows = torch.stack([members[k][torch.randint(len(members[k]), (16,))] for k in groups])
    batch = (groups, x[rows], y[rows])
    value = opt.step(lambda batch=batch: opt.objective.inner(model, batch))
    if step % 200 == 199:
        right = model(x_test).argmax(1) == y_test
        worst = min(right[y_test == k].float().mean().item() for k in range(10))
        print(f"step {step + 1}: mean f(u) {value:.3f}, worst digit's test accuracy {worst:.3f}")
