"""Lightning with automatic optimization: validation, early stopping, resuming, inference.

The criterion is an attribute of the module, so its table is in Lightning's checkpoints, and a run
that stops is resumed bit for bit. Validation scores are collected from all processes and compared
at the end of the pass, with the validation labels.

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
from torch.utils.data import DataLoader, TensorDataset

import fcco

warnings.filterwarnings("ignore")  # Lightning's advice on workers and logging intervals
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

x, digit = (torch.tensor(part) for part in load_digits(return_X_y=True))
x, labels = x.float() / 16, torch.nn.functional.one_hot(digit)  # ten tasks
train, valid, test = slice(0, 1000), slice(1000, 1300), slice(1300, None)


class Classifier(pl.LightningModule):
    def __init__(self, train_labels=None, valid_labels=None):
        """Without labels the module is for inference only."""
        super().__init__()
        self.model = torch.nn.Sequential(
            torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        )
        self.criterion = None
        if train_labels is not None:
            self.criterion = fcco.losses.AUCLoss(train_labels)
            self.validation = self.criterion.objective.on(valid_labels)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.model.parameters(), lr=3e-3)

    def training_step(self, batch, step):
        inputs, index = batch
        loss = self.criterion(self.model(inputs), index)
        self.log("F", loss)
        return loss

    def on_validation_epoch_start(self):
        self.seen = []

    def validation_step(self, batch, step):  # not the criterion: it has the training labels
        inputs, index = batch
        self.seen.append((self.model(inputs), index))

    def on_validation_epoch_end(self):
        if self.trainer.sanity_checking:  # only some batches
            return
        scores, index = (self.all_gather(torch.cat(part)) for part in zip(*self.seen, strict=True))
        # With several processes some samples come twice, to fill the last batches.
        whole = scores.new_empty(self.validation.num_samples, 10)
        whole[index.flatten()] = scores.view(-1, 10)
        self.log("valid_loss", self.validation.exact(whole))
        self.log("valid_auc", self.validation.metric(whole))


def fit(epochs, directory, checkpoint=None):
    """Train to the end of an epoch, from the start or from a checkpoint."""
    torch.manual_seed(0)
    classifier = Classifier(labels[train], labels[valid])
    data = fcco.data.WithIndex(TensorDataset(x[train]))
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        default_root_dir=directory,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
        callbacks=pl.callbacks.EarlyStopping("valid_auc", mode="max", patience=5),
    )
    # Each epoch has its own order, so that a resumed run sees what the whole one saw.
    loader = DataLoader(data, batch_size=16, sampler=Shuffled(data, trainer))
    valid_loader = DataLoader(fcco.data.WithIndex(TensorDataset(x[valid])), batch_size=100)
    trainer.fit(classifier, loader, valid_loader, ckpt_path=checkpoint)
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
    held_out = fcco.objectives.AUC(labels[test])
    with torch.no_grad():
        return held_out.metric(classifier.model(x[test]))


epochs = 2 if "--quick" in sys.argv else 10
with tempfile.TemporaryDirectory() as place:
    directory = Path(place)
    print(f"epoch 0: test 1 - AUC {1 - test_auc(Classifier()):.4f}")
    whole = fit(epochs, directory)
    fit(epochs // 2, directory)
    resumed = fit(epochs, directory, directory / f"{epochs // 2}.ckpt")
    for name, tensor in whole.state_dict().items():
        assert tensor.equal(resumed.state_dict()[name]), name
    # For inference no labels are needed: what is left over in the checkpoint is the table.
    loaded = Classifier.load_from_checkpoint(directory / f"{epochs}.ckpt", strict=False)
print(f"epoch {epochs}: test 1 - AUC {1 - test_auc(loaded):.4f}")
