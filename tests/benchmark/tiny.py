"""Problems of a moment, whose optimum can be found otherwise."""

import torch
from torch import nn

from fcco.objectives import Cox, GroupDRO, PNormPush
from fcco_lab.benchmark import Problem


def _data(count=60, width=3):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, width, generator=generator, dtype=torch.float64)
    noise = torch.randn(count, generator=generator, dtype=torch.float64)
    return x, (x[:, 0] + noise > 0.5).long()


def _linear(width):
    def build():
        model = nn.Linear(width, 1, bias=False)
        nn.init.zeros_(model.weight)
        return model

    return build


def tiny_push(data_dir):
    x, y = _data()
    return Problem(
        x,
        lambda: PNormPush(y, power=2.0),
        _linear(3),
        convex=True,
        penalty=0.05,
        sampling="samples",
        paired=lambda: PNormPush(y, power=2.0, paired=True),
        labels=(y,),
    )


def tiny_line(data_dir):
    """One weight: a bracketing search finds the optimum."""
    x, y = _data(width=1)
    return Problem(x, lambda: PNormPush(y, power=2.0), _linear(1), convex=True, penalty=0.05)


def tiny_groups(data_dir):
    x, y = _data()
    groups = torch.arange(len(y)) % 6

    def loss(outputs, targets):
        return nn.functional.softplus((1 - 2 * targets) * outputs.squeeze(-1))

    return Problem(
        x,
        lambda: GroupDRO(groups, y, temperature=0.5, loss=loss),
        _linear(3),
        convex=True,
        penalty=0.05,
    )


def tiny_cox(data_dir):
    x, _ = _data()
    generator = torch.Generator().manual_seed(1)
    times = torch.rand(len(x), generator=generator)
    events = torch.rand(len(x), generator=generator) < 0.7
    labels = times, events
    return Problem(
        x, lambda: Cox(*labels), _linear(3), convex=True, sampling="samples", labels=labels
    )
