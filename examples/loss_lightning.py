"""Lightning with automatic optimization: a run that stops is resumed bit for bit.

The criterion is an attribute of the module, so its table is in Lightning's checkpoints.

pip install fcco[sklearn] pytorch-lightning
python examples/loss_lightning.py [--quick]
"""

import logging
import sys
import tempfile
import warnings
from pathlib import Path

import pytorch_lightning as pl
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch.utils.data import DataLoader, TensorDataset

import fcco

warnings.filterwarnings("ignore")  # Lightning's advice on workers and logging intervals
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

x, digit = (torch.tensor(part) for part in load_digits(return_X_y=True))
x, labels = x.float() / 16, torch.nn.functional.one_hot(digit)  # ten tasks


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Sequential(
            torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        )
        self.criterion = fcco.losses.AUCLoss(labels[:1200])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.model.parameters(), lr=3e-3)

    def training_step(self, batch, step):
        inputs, index = batch
        loss = self.criterion(self.model(inputs), index)
        self.log("F", loss)
        return loss


def fit(epochs, directory, checkpoint=None):
    """Train to the end of an epoch, from the start or from a checkpoint."""
    torch.manual_seed(0)
    classifier = Classifier()
    # Each epoch has its own order, so that a resumed run sees what the whole one saw.
    data = fcco.data.WithIndex(TensorDataset(x[:1200]))
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        default_root_dir=directory,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
    )
    loader = DataLoader(data, batch_size=16, sampler=Shuffled(data, trainer))
    trainer.fit(classifier, loader, ckpt_path=checkpoint)
    trainer.save_checkpoint(directory / f"{epochs}.ckpt")
    return classifier


class Shuffled(torch.utils.data.Sampler):
    """The order of an epoch follows from its number."""

    def __init__(self, data, trainer):
        self.size, self.trainer = len(data), trainer

    def __len__(self):
        return self.size

    def __iter__(self):
        order = torch.Generator().manual_seed(self.trainer.current_epoch)
        return iter(torch.randperm(self.size, generator=order).tolist())


def test_auc(classifier):
    with torch.no_grad():
        return roc_auc_score(labels[1200:], classifier.model(x[1200:]))


epochs = 2 if "--quick" in sys.argv else 10
with tempfile.TemporaryDirectory() as place:
    directory = Path(place)
    print(f"epoch 0: test 1 - AUC {1 - test_auc(Classifier()):.4f}")
    whole = fit(epochs, directory)
    fit(epochs // 2, directory)
    resumed = fit(epochs, directory, directory / f"{epochs // 2}.ckpt")
for name, tensor in whole.state_dict().items():
    assert tensor.equal(resumed.state_dict()[name]), name
print(f"epoch {epochs}: test 1 - AUC {1 - test_auc(resumed):.4f}")
