"""The estimate z in .grad, and AdamW to take the step: any torch optimizer will do.

python examples/adamw.py
"""

import torch

import fcco

torch.manual_seed(0)
train, test = fcco.data.load_digits()
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
objective = fcco.objectives.MultiTaskAUC(num_tasks=10)
loader = fcco.data.block_loader(
    train, objective, blocks_per_step=5, samples_per_block=128, num_steps=400, seed=0
)
estimator = fcco.MSVRM(model.parameters(), objective, version=1, lr=0.0, alpha=0.5, beta=0.5)
adamw = torch.optim.AdamW(model.parameters(), lr=1e-2)

for step, batch in enumerate(loader):
    estimator.estimate(lambda batch=batch: objective.inner(model, batch))
    adamw.step()
    if step % 100 == 99:
        print(
            f"step {step + 1}: test objective {fcco.data.exact_value(model, test, objective):.4f}"
        )
