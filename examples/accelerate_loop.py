"""Accelerate: prepare the model alone; the loader and the optimizer know their rank themselves.

pip install fcco[lab] accelerate
python examples/accelerate_loop.py
accelerate launch --cpu --num_processes 2 examples/accelerate_loop.py
"""

import torch
from accelerate import Accelerator

import fcco

accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
(x, y), (x_test, y_test) = fcco.data.load_digits()
objective = fcco.objectives.MultiTaskAUC(y)  # ten classes, ten tasks
held_out = objective.on(y_test)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
model = accelerator.prepare(model)
# Of the prepared model, and after it: blocks are shared by all processes from here on.
opt = fcco.MSVRM(
    model.parameters(),
    objective,
    version=2,
    lr=3e-3,
    alpha=0.5,
    beta=0.5,
    update=fcco.updates.Adam(),
    safeguard=fcco.ChangeBound(),
)
loader = fcco.data.block_loader(
    x, objective, blocks_per_step=4, samples_per_block=128, num_steps=400, seed=0, shares=2
)
for step, batch in enumerate(loader):
    batch = batch.to(accelerator.device)
    opt.step(lambda batch=batch: objective.inner(model, batch))
    if step % 100 == 99:
        plain = accelerator.unwrap_model(model)
        value = fcco.data.exact_value(plain, x_test, held_out)
        accelerator.print(f"step {step + 1}: test objective {value:.4f}")
accelerator.end_training()
