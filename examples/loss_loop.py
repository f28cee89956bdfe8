"""A plain PyTorch loop with a loss that compares every sample with the whole training set.

AdamW, clipping, OneCycleLR and bfloat16 are used as with any other loss. What differs from
cross-entropy are the three lines marked below.

pip install fcco[sklearn]
python examples/loss_loop.py [--quick]
"""

import sys

import torch
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score
from torch.utils.data import DataLoader, TensorDataset

import fcco

epochs = 2 if "--quick" in sys.argv else 20
torch.manual_seed(0)
x, digit = (torch.tensor(part) for part in load_digits(return_X_y=True))
x, label = x.float() / 16, (digit == 8).long()
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))

criterion = fcco.losses.APLoss(label[:1200])  # 1: it knows all labels
data = fcco.data.WithIndex(TensorDataset(x[:1200]))  # 2: samples come with their index
loader = DataLoader(data, batch_size=16, shuffle=True)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
schedule = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=epochs * len(loader))


def average_precision():
    with torch.no_grad():
        return average_precision_score(label[1200:], model(x[1200:])[:, 0])


print(f"epoch 0: test 1 - AP {1 - average_precision():.4f}")
for _ in range(epochs):
    for inputs, index in loader:
        opt.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            scores = model(inputs)
        loss = criterion(scores, index)  # 3: called with the index
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        schedule.step()
print(f"epoch {epochs}: test 1 - AP {1 - average_precision():.4f}")
