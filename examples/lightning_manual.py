"""Lightning with manual optimization: the optimizer calls the closure at every point it needs.

pip install fcco[lab] pytorch-lightning
python examples/lightning_manual.py
"""

import logging
import warnings

import pytorch_lightning as pl
import torch

import fcco

warnings.filterwarnings("ignore")  # Lightning's advice on workers and logging intervals
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class Ranker(pl.LightningModule):
    def __init__(self, objective):
        super().__init__()
        self.automatic_optimization = False
        self.objective = objective
        self.model = torch.nn.Sequential(
            torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        )

    def configure_optimizers(self):
        return fcco.MSVRM(
            self.model.parameters(),
            self.objective,
            version=2,
            lr=3e-3,
            alpha=0.5,
            beta=0.5,
            update=fcco.updates.Adam(),
            safeguard=fcco.ChangeBound(),
            buffers=self.model.buffers(),
        )

    def training_step(self, batch, index):
        # Its checkpoints hold the optimizer's state_dict, and with it the table.
        value = self.optimizers().step(lambda: self.objective.inner(self.model, batch))
        self.log("objective", value)


torch.manual_seed(0)
(x, y), (x_test, y_test) = fcco.data.load_digits()
ranker = Ranker(fcco.objectives.MultiTaskAUC(y))  # ten classes, ten tasks
held_out = ranker.objective.on(y_test)
loader = fcco.data.block_loader(
    x, ranker.objective, blocks_per_step=5, samples_per_block=128, num_steps=400, seed=0
)
trainer = pl.Trainer(
    max_epochs=1,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
before = fcco.data.exact_value(ranker.model, x_test, held_out)
trainer.fit(ranker, loader)
after = fcco.data.exact_value(ranker.model, x_test, held_out)
print(f"step 0: test objective {before:.4f}")
print(f"step {trainer.global_step}: test objective {after:.4f}")
