"""The documented ways to clip a step."""

import torch
from torch import nn

import fcco
from fcco import objectives as O
from fcco.data import block_loader


def test_projected_is_clip_grad_norm_before_sgd():
    torch.manual_seed(0)
    inputs, objective = torch.randn(30, 4), O.MultiTaskAUC(torch.arange(30) % 3)
    ours, theirs = nn.Linear(4, 3), nn.Linear(4, 3)
    theirs.load_state_dict(ours.state_dict())
    radius, clipped = 0.05, 0
    opt = fcco.SOX(ours, objective, lr=0.5, update=fcco.updates.Projected(radius))
    estimator = fcco.SOX(theirs, objective, lr=0.0)
    sgd = torch.optim.SGD(theirs.parameters(), lr=0.5)
    loader = block_loader(inputs, objective, blocks_per_step=2, samples_per_block=4, num_steps=20)
    for batch in loader:
        opt.step(lambda batch=batch: objective.inner(ours, batch))
        estimator.estimate(lambda batch=batch: objective.inner(theirs, batch))
        clipped += int(nn.utils.clip_grad_norm_(theirs.parameters(), radius) > radius)
        sgd.step()
        torch.testing.assert_close(list(ours.parameters()), list(theirs.parameters()))
    assert clipped > 5
