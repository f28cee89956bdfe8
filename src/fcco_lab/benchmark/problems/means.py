"""Functions of means over the data set: one block, whose batch loss is biased."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fcco.losses import MeansLoss
from fcco.objectives.grouped import GroupObjective
from fcco.problem.batches import GroupBatch
from fcco.problem.probe import Probe
from fcco_lab.benchmark.problem import Problem
from fcco_lab.benchmark.problems.census import census
from fcco_lab.benchmark.problems.models import linear

__all__ = ["FunctionOfMeans", "correlation", "f1"]


class FunctionOfMeans(GroupObjective):
    """f of the means of some statistics of outputs and targets: all samples are one group.

    Args:
        targets: (N,).
        statistics: (outputs, targets) to (B, p).
        function: f, from (..., p) to (...).
        inner_dim: p.
    """

    targets: Tensor

    def __init__(
        self,
        targets: Tensor,
        statistics: Callable[[Tensor, Tensor], Tensor],
        function: Callable[[Tensor], Tensor],
        inner_dim: int,
    ) -> None:
        self.statistics, self.function, self.inner_dim = statistics, function, inner_dim
        self._set_groups(torch.zeros(len(targets), dtype=torch.int64), targets)

    def inner(self, model: Any, batch: GroupBatch) -> Probe:
        """The means over a batch."""
        assert batch.targets is not None
        lines = self.statistics(model(batch.inputs), batch.targets)
        means = batch.mean(lines)
        return Probe(batch.blocks, means, batch.counts, noise=batch.noise(lines, means))

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """f of the means."""
        return self.function(u)

    def exact(self, outputs: Tensor) -> Tensor:
        """F of the outputs of all samples."""
        return self.function(self.statistics(outputs, self.targets).mean(0))

    def loss(self) -> Callable[[Tensor, Tensor], Tensor]:
        """A remembering loss of the same function."""
        criterion = MeansLoss(self.function, self.inner_dim)
        return lambda outputs, index: criterion(self.statistics(outputs, self.targets[index]))


def _f1_statistics(outputs: Tensor, targets: Tensor) -> Tensor:
    p = outputs.squeeze(-1).sigmoid()
    return torch.stack([p * targets, p, targets.to(p.dtype)], dim=-1)


def _one_minus_f1(u: Tensor) -> Tensor:
    return 1 - 2 * u[..., 0] / (u[..., 1] + u[..., 2])


def f1(data_dir: Path | None) -> Problem:
    """One minus a soft F1 score; not convex."""
    x, y = census(data_dir)

    def objective() -> FunctionOfMeans:
        return FunctionOfMeans(y, _f1_statistics, _one_minus_f1, 3)

    return Problem(
        x,
        objective,
        linear(x.shape[1]),
        penalty=1e-4,
        sampling="samples",
        loss=lambda: objective().loss(),
        labels=(y,),
    )


def _moments(outputs: Tensor, targets: Tensor) -> Tensor:
    h = outputs.squeeze(-1)
    return torch.stack([h, h.square(), h * targets], dim=-1)


def correlation(data_dir: Path | None) -> Problem:
    """One minus the correlation of a linear score with a target; least squares has the optimum."""
    x, y = census(data_dir)
    target = (y - y.double().mean()) / y.double().std(correction=0)
    centred = x - x.mean(0)
    fitted = centred @ torch.linalg.lstsq(centred, target.unsqueeze(1), driver="gelsd").solution
    best = 1 - float(torch.corrcoef(torch.stack([fitted.squeeze(1), target]))[0, 1])

    def one_minus_correlation(u: Tensor) -> Tensor:
        spread = (u[..., 1] - u[..., 0].square()).clamp(min=1e-12).sqrt()
        return 1 - u[..., 2] / spread

    def model() -> nn.Module:
        layer = nn.Linear(x.shape[1], 1, bias=False)
        nn.init.normal_(layer.weight, std=0.1)  # at 0 it is not defined
        return layer

    def objective() -> FunctionOfMeans:
        return FunctionOfMeans(target, _moments, one_minus_correlation, 3)

    return Problem(
        x, objective, model, optimum=best, sampling="samples", loss=lambda: objective().loss()
    )
