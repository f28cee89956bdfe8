"""A plain PyTorch loop with a loss that compares every sample with the whole training set.

AdamW, clipping, a schedule and bfloat16 are used as with any other loss; three lines differ from
cross-entropy. Validation and early stopping use the objective of the validation labels.

pip install fcco[sklearn]
python examples/loss_loop.py [--quick]
"""

import copy
import sys

import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import fcco

epochs, patience = (2 if "--quick" in sys.argv else 30), 5
torch.manual_seed(0)
x, digit = (torch.tensor(part) for part in load_digits(return_X_y=True))
x, label = x.float() / 16, (digit == 8).long()
train, valid, test = slice(0, 1000), slice(1000, 1300), slice(1300, None)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))

criterion = fcco.losses.APLoss(label[train])  # 1: it knows all training labels
data = fcco.data.WithIndex(TensorDataset(x[train]))  # 2: samples come with their index
loader = DataLoader(data, batch_size=16, shuffle=True)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, epochs * len(loader))
validation, held_out = (criterion.objective.on(label[part]) for part in (valid, test))


def scores(part):
    model.eval()
    with torch.no_grad():
        return model(x[part])


print(f"epoch 0: test 1 - AP {1 - held_out.metric(scores(test)):.4f}")
best, since, weights = 0.0, 0, None
for epoch in range(1, epochs + 1):
    model.train()
    for inputs, index in loader:
        opt.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            outputs = model(inputs)
        loss = criterion(outputs, index)  # 3: called with the index
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        schedule.step()
    found = validation.metric(scores(valid))  # validation.exact(...) is the loss
    print(f"epoch {epoch}: validation 1 - AP {1 - found:.4f}")
    since += 1
    if found > best:
        best, since, weights = found, 0, copy.deepcopy(model.state_dict())
    if since == patience:
        break
model.load_state_dict(weights)
print(f"best epoch: test 1 - AP {1 - held_out.metric(scores(test)):.4f}")
