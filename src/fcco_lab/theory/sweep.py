"""Many runs of one recipe at once, as one problem of one optimizer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fcco.distributed.sharded import global_norm
from fcco.methods import SlopeAt
from fcco.problem import Objective, Probe
from fcco.schedules import Driver, Recipe
from fcco.updates import Norm, Normalized
from fcco_lab.theory.phase_noise import PhaseNoise

__all__ = ["Stacked", "Sweep", "Traces"]

Draw = tuple[Tensor, Tensor, Tensor]
"""Blocks, phases and second phases of every run, each (runs, B1)."""


@dataclass
class Traces:
    """Measurements during a run, one entry per run.

    Args:
        gradient: the mean over steps of ||grad F(w_t)||.
        error: the mean over steps of ||z_t - grad F(w_t)||.
        gaps: F(w) - F(w*) at the end of each stage, (stages, runs).
    """

    gradient: Tensor
    error: Tensor
    gaps: Tensor


class Stacked(Objective):
    """Many runs of one problem as one problem: block i of run r is block r m + i.

    A step takes the mean over the probed blocks of all runs; every f_i is therefore multiplied by
    the number of runs, so that each run sees the gradient of its own mean.

    Args:
        problem: the problem of every run.
        runs: their number.
        paired: whether slopes are taken at a second sample.
    """

    inner_dim = 1

    def __init__(self, problem: PhaseNoise, runs: int, *, paired: bool) -> None:
        self.problem = problem
        self.runs = runs
        self.paired = paired
        self.num_blocks = runs * problem.num_blocks
        self.offset = torch.arange(runs).unsqueeze(1) * problem.num_blocks

    def inner(self, w: Any, batch: Draw) -> Probe:
        """The sampled values at w of all runs, (runs, dim)."""
        blocks, xi, second = batch
        values = self.problem.sample(w, blocks, xi).view(-1, 1)
        pair = self.problem.sample(w, blocks, second).view(-1, 1) if self.paired else None
        return Probe((blocks + self.offset).flatten(), values, pair=pair)

    def exact(self, w: Tensor) -> Probe:
        """The exact values of all blocks, in closed form."""
        values = self.problem.exact_inner(w).view(-1, 1)
        return Probe(torch.arange(self.num_blocks), values, self.problem.inner_size or 1, values)

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """f_i(u), times the number of runs."""
        return self.runs * self.problem.outer(u, blocks % self.problem.num_blocks)

    def outer_slope(self, u: Tensor, blocks: Tensor) -> Tensor:
        """f_i'(u) in closed form, times the number of runs."""
        slope = self.problem.slope(u[:, 0], blocks % self.problem.num_blocks)
        return self.runs * slope.unsqueeze(1)


class NormalizedRuns(Normalized):
    """The normalized step of every run by itself: w of all runs is one parameter, (runs, dim)."""

    def directions(
        self, zs: Sequence[Tensor], states: Sequence[dict[str, Any]], norm: Norm = global_norm
    ) -> list[Tensor]:
        """z / ||z|| of each row."""
        return [nn.functional.normalize(z, dim=1) for z in zs]


class Sweep:
    """Runs ``recipe`` from ``problem.start`` with ``runs`` independent seeds, batched.

    ``draw`` may be replaced to prescribe the samples.
    """

    def __init__(
        self, problem: PhaseNoise, recipe: Recipe, *, blocks: int, runs: int, seed: int
    ) -> None:
        if getattr(recipe.update, "radius", None) is not None:
            raise ValueError("a projected step would take the norm over all runs")
        self.problem, self.blocks, self.runs = problem, blocks, runs
        self.generator = torch.Generator().manual_seed(seed)
        self.w = nn.Parameter(problem.start.expand(runs, -1).clone())
        self.objective = Stacked(problem, runs, paired=recipe.method.slope_at is SlopeAt.PAIR)
        # Drawn also where it is not used, so that the samples of the steps are the same.
        initial = self._initial_rows(recipe.initial_samples or 1)
        needed = recipe.method.inner is not None and not recipe.method.anchored
        if isinstance(recipe.update, Normalized):
            recipe = replace(recipe, update=NormalizedRuns())
        self.driver = Driver.build(
            recipe, [self.w], self.objective, initial=initial if needed else None
        )
        self.draw: Callable[[], Draw] = self._draw

    @property
    def z(self) -> Tensor:
        """(runs, dim)."""
        z: Tensor = self.driver.opt.state[self.w]["z"]
        return z

    @torch.no_grad()
    def _initial_rows(self, samples: int) -> Tensor:
        """The mean of some samples of every block at the start: (runs m, 1)."""
        m = self.problem.num_blocks
        everything = torch.arange(m).expand(self.runs, m)
        total = torch.zeros((self.runs, m), dtype=torch.float64)
        for _ in range(samples):
            phases = self.problem.phases((self.runs, m), self.generator)
            total += self.problem.sample(self.w, everything, phases)
        return (total / samples).view(-1, 1)

    def _draw(self) -> Draw:
        shape = (self.runs, self.problem.num_blocks)
        blocks = torch.rand(shape, generator=self.generator).argsort(1)[:, : self.blocks]
        size = (self.runs, self.blocks)
        first = self.problem.phases(size, self.generator)
        return blocks, first, self.problem.phases(size, self.generator)

    def step(self) -> None:
        """One step of all runs, after an exact pass if one is due."""
        opt = self.driver.opt
        if self.driver.snapshot_due:
            opt.snapshot(lambda: self.objective.exact(self.w))
        batch = self.draw()
        opt.step(lambda: self.objective.inner(self.w, batch))
        self.driver.step()

    def run(self) -> Traces:
        """All steps of the recipe."""
        problem, recipe = self.problem, self.driver.recipe
        total, w = recipe.num_steps, self.w.detach()
        ends = {
            start + stage.num_steps - 1
            for start, stage in zip(recipe.starts, recipe.stages, strict=True)
        }
        gradient = torch.zeros(self.runs, dtype=torch.float64)
        error = torch.zeros_like(gradient)
        gaps = []
        for t in range(1, total + 1):
            exact = problem.gradient(w)
            self.step()
            gradient += exact.norm(dim=1) / total
            error += (self.z - exact).norm(dim=1) / total
            if t in ends:
                gaps.append(problem.value(w) - problem.value(problem.w_star))
        return Traces(gradient, error, torch.stack(gaps))
