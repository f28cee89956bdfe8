"""Run by two processes that Lightning starts: a criterion inside a LightningModule.

Without BatchNorm the module has no buffer that is not the criterion's.
"""

import os
import sys
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fcco import losses as L

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Lightning's own
    import pytorch_lightning as pl

LABELS = torch.arange(60) % 3 == 0
X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)) + LABELS[:, None]


class Scorer(pl.LightningModule):
    """Trained on its own criterion."""

    def __init__(self, norm):
        super().__init__()
        self.net = nn.Sequential(nn.BatchNorm1d(3) if norm else nn.Identity(), nn.Linear(3, 1))
        self.criterion = L.AUCLoss(LABELS)
        self.losses = []

    def training_step(self, batch, _):
        x, index = batch
        loss = self.criterion(self.net(x), index)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def train(norm, directory):
    torch.manual_seed(0)
    module = Scorer(norm)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=pl.strategies.DDPStrategy(process_group_backend="gloo"),
        max_epochs=2,
        default_root_dir=directory,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = DataLoader(TensorDataset(X, torch.arange(60)), batch_size=5, shuffle=True)
    trainer.fit(module, loader)
    states = [None] * 2
    dist.all_gather_object(states, (module.state_dict(), module.losses))
    (one, losses), (other, _) = states
    assert all(one[name].equal(other[name]) for name in one if "running" not in name)
    assert len(losses) == 12, "two epochs of six steps"
    assert one["criterion.num_seen"] == 60
    assert losses[-1] < losses[5], "since all samples were seen"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    for norm in (True, False):
        train(norm, sys.argv[1])
    sys.stdout.write("both trained\n")
