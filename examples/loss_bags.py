"""Survival from bags, one bag per step, as with whole-slide images that fill the memory.

A bag of handwritten digits stands for a patient; the eights in it raise the hazard. An in-batch Cox
loss has no gradient at batch size 1. This one compares the bag with all others.

pip install fcco[sklearn]
python examples/loss_bags.py [--quick]
"""

import sys

import torch
from sklearn.datasets import load_digits

import fcco

patients, epochs = (200, 6) if "--quick" in sys.argv else (400, 20)
torch.manual_seed(0)
images, digit = (torch.tensor(part) for part in load_digits(return_X_y=True))
images = images.float() / 16
sizes = torch.randint(5, 40, (patients,))  # bags of different sizes cannot be stacked
members = [torch.randint(len(images), (int(size),)) for size in sizes]
hazard = torch.stack([(digit[bag] == 8).float().mean() for bag in members])
times = (-15 * hazard).exp() * torch.empty(patients).uniform_(0.5, 1.5)
events = torch.rand(patients) < 0.7


class Attention(torch.nn.Module):
    """One score per bag: a weighted mean over its images."""

    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU())
        self.weight, self.score = torch.nn.Linear(32, 1), torch.nn.Linear(32, 1)

    def forward(self, bag):
        features = self.features(bag)
        return (self.weight(features).softmax(0) * self.score(features)).sum(0)


model, train = Attention(), range(patients * 3 // 4)
test = range(len(train), patients)
criterion = fcco.losses.CoxLoss(times[: len(train)], events[: len(train)])
held_out = criterion.objective.on(times[len(train) :], events[len(train) :])
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)


def test_loss():
    with torch.no_grad():
        return held_out.exact(torch.cat([model(images[members[k]]) for k in test])).item()


print(f"epoch 0: test objective {test_loss():.4f}")
for _ in range(epochs):
    for k in torch.randperm(len(train)).tolist():
        opt.zero_grad()
        loss = criterion(model(images[members[k]]), torch.tensor([k]))
        loss.backward()
        opt.step()
print(f"epoch {epochs}: test objective {test_loss():.4f}")
