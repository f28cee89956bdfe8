"""Accelerate: gradient accumulation with a loss that remembers scores.

pip install fcco[sklearn] accelerate
python examples/loss_accelerate.py [--quick]
"""

import sys

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import fcco

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
epochs = 2 if "--quick" in sys.argv else 20
torch.manual_seed(0)
x, digit = (torch.tensor(part) for part in load_digits(return_X_y=True))
x, label = x.float() / 16, (digit == 8).long()
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
criterion = fcco.losses.AUCLoss(label[:1200])
data = fcco.data.WithIndex(TensorDataset(x[:1200]))
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
# The criterion is not prepared: it stays whole on every process.
model, opt, loader = accelerator.prepare(model, opt, DataLoader(data, batch_size=4, shuffle=True))
accelerator.register_for_checkpointing(criterion)

start = criterion.exact(torch.zeros(1200)).item()
accelerator.print(f"epoch 0: training objective {start:.4f}")
for _ in range(epochs):
    for inputs, index in loader:
        with accelerator.accumulate(model):
            loss = criterion(model(inputs), index)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
with torch.no_grad():
    end = criterion.exact(accelerator.unwrap_model(model)(x[:1200])[:, 0])
accelerator.print(f"epoch {epochs}: training objective {end.item():.4f}")
accelerator.end_training()
