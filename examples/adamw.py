"""The estimate z in .grad, and AdamW to take the step: any torch optimizer will do.

python examples/adamw.py
"""

import torch

import fcco

torch.manual_seed(0)
(x, y), (x_test, y_test) = fcco.data.load_digits()
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
objective = fcco.objectives.MultiTaskAUC(y)  # ten classes, ten tasks
held_out = objective.on(y_test)
loader = fcco.data.block_loader(
    x, objective, blocks_per_step=5, samples_per_block=128, num_steps=400, seed=0
)
estimator = fcco.MSVRM(model.parameters(), objective, version=1, lr=0.0, alpha=0.5, beta=0.5)
adamw = torch.optim.AdamW(model.parameters(), lr=1e-2)

for step, batch in enumerate(loader):
    estimator.estimate(lambda batch=batch: objective.inner(model, batch))
    adamw.step()
    if step % 100 == 99:
        value = fcco.data.exact_value(model, x_test, held_out)
        print(f"step {step + 1}: test objective {value:.4f}")
