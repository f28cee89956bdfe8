"""Many runs of one recipe at once: the kernel on tensors with a leading dimension of runs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fcco.methods.coefficients import Coefficients, Scalar, Weights, gamma_age, gamma_storm, gamma_theory
from fcco.methods import SlopeAt
from fcco.methods.point import Point
from fcco.problems import PhaseNoise
from fcco.kernel.recursion import advance
from fcco.kernel.safeguard import ChangeBound
from fcco.schedules import Recipe, Stage
from fcco.updates import Normalized, Plain
from fcco.updates.adam import SecondMoment
from fcco.updates.projected import Projected

__all__ = ["Sweep", "Traces", "with_gamma"]


@dataclass
class Traces:
    """What is measured along the way, one entry a run.

    Args:
        gradient: the mean over steps of ||grad F(w_t)||.
        error: the mean over steps of ||z_t - grad F(w_t)||.
        tracking: the mean over the second half of ||u_t - g(w_t)||^2 / m; zero without a table.
        gaps: F(w) - F(w*) at the end of each stage, (stages, runs).
        queries: value and gradient queries of one run.
    """

    gradient: Tensor
    error: Tensor
    tracking: Tensor
    gaps: Tensor
    queries: tuple[int, int]


class Sweep:
    """Runs ``recipe`` from ``problem.start`` with ``runs`` independent seeds, batched.

    Slopes, points, weights and recursions are those of the optimizer; a test ties the two step by
    step. ``draw`` may be replaced to prescribe the samples.
    """

    def __init__(
        self,
        problem: PhaseNoise,
        recipe: Recipe,
        *,
        blocks: int,
        runs: int,
        seed: int,
        safeguard: ChangeBound | None = None,
    ) -> None:
        self.safeguard = safeguard
        self.problem, self.recipe, self.blocks, self.runs = problem, recipe, blocks, runs
        self.method = recipe.method
        self.generator = torch.Generator().manual_seed(seed)
        m = problem.num_blocks
        self.w = problem.start.expand(runs, -1).clone()
        self.places = {Point.PREVIOUS: self.w.clone(), Point.SNAPSHOT: self.w.clone()}
        self.z = torch.zeros_like(self.w)
        self.u = self._first_table()
        self.tables = {Point.CURRENT: self.u, Point.PREVIOUS: self.u, Point.SNAPSHOT: self.u}
        self.last_visit = torch.zeros((runs, m), dtype=torch.int64)
        self.exact_inner = torch.zeros((runs, m), dtype=torch.float64)
        self.anchor = torch.zeros_like(self.w)
        self.h = torch.zeros_like(self.w)
        self.h_max = torch.zeros_like(self.w)
        self.step, self.snapshot_step = 0, 0
        self.values = self.gradients = 0
        self.draw: Callable[[], tuple[Tensor, Tensor, Tensor]] = self._draw

    def _first_table(self) -> Tensor:
        m, samples = self.problem.num_blocks, self.recipe.initial_samples or 1
        everything = torch.arange(m).expand(self.runs, m)
        total = torch.zeros((self.runs, m), dtype=torch.float64)
        for _ in range(samples):
            phases = self.problem.phases((self.runs, m), self.generator)
            total += self.problem.sample(self.w, everything, phases)
        return total / samples

    def _draw(self) -> tuple[Tensor, Tensor, Tensor]:
        shape = (self.runs, self.problem.num_blocks)
        blocks = torch.rand(shape, generator=self.generator).argsort(1)[:, : self.blocks]
        size = (self.runs, self.blocks)
        first = self.problem.phases(size, self.generator)
        return blocks, first, self.problem.phases(size, self.generator)

    def snapshot(self) -> None:
        """The exact pass, known in closed form; counted as what it would cost."""
        problem, m = self.problem, self.problem.num_blocks
        everything = torch.arange(m).expand(self.runs, m)
        self.exact_inner = problem.exact_inner(self.w)
        if self.snapshot_step == 0:
            self.u = self.exact_inner.clone()
            self.tables[Point.CURRENT] = self.tables[Point.PREVIOUS] = self.u
        at = self.exact_inner if self.method.slope_at is SlopeAt.PAIR else self.u
        slopes = problem.slope(at, everything)
        self.anchor = (slopes.unsqueeze(-1) * problem.a).mean(-2)
        self.tables[Point.SNAPSHOT] = self.u
        self.places[Point.SNAPSHOT] = self.w.clone()
        self.snapshot_step = self.step + 1
        cost = m * (problem.inner_size or 0)
        self.values += cost
        self.gradients += cost

    def advance(self, c: Coefficients) -> None:
        """One step of all runs."""
        problem, method, t = self.problem, self.method, self.step + 1
        blocks, xi, pair = self.draw()
        coincide = {Point.PREVIOUS} if t == 1 else set()
        if self.snapshot_step == t:
            coincide.add(Point.SNAPSHOT)

        def trimmed(row: Weights) -> Weights:
            for point in coincide:
                row = row.without(point)
            return row

        gradient_row = trimmed(method.gradient(c.alpha))
        keep = 1 - c.alpha
        if t == 1:
            gradient_row, keep = gradient_row.at_start(), 0.0
        inner_row = None
        if method.inner is not None:
            gamma = self._gamma(c, blocks, t)
            inner_row = trimmed(method.inner(c.beta, gamma, problem.num_blocks / self.blocks))

        def place(point: Point) -> Tensor:
            return self.w if point is Point.CURRENT else self.places[point]

        def pull(point: Point) -> Tensor:
            w = place(point)
            if method.slope_at is SlopeAt.PAIR:
                at = problem.sample(w, blocks, pair)
            elif method.slope_at is SlopeAt.VALUE:
                at = problem.sample(w, blocks, xi)
            else:
                at = self.tables[point].gather(1, blocks)
            slopes = problem.slope(at, blocks).unsqueeze(-1)
            return (slopes * problem.jacobian(w, blocks, xi)).mean(-2)

        now = pull(Point.CURRENT)
        changes = {point: now - pull(point) for point in gradient_row.points()}
        if self.safeguard is not None and Point.PREVIOUS in changes:
            sizes = (x.norm(dim=1, keepdim=True) for x in (now, changes[Point.PREVIOUS]))
            damp = self.safeguard.scale(c.alpha, *sizes)
            damped = gradient_row.since_previous * damp
            gradient_row = replace(gradient_row, since_previous=damped)
        z = advance(self.z, keep, gradient_row, now, changes, self.anchor)
        looked = {Point.CURRENT} | gradient_row.points()
        u = self.u
        if inner_row is not None:
            value = problem.sample(self.w, blocks, xi)
            moved: dict[Point, Tensor] = {}
            for point in inner_row.points():
                if method.single_point and point is Point.PREVIOUS:
                    direction = (self.w - self.places[point]).unsqueeze(-2)
                    moved[point] = (problem.jacobian(self.w, blocks, xi) * direction).sum(-1)
                else:
                    moved[point] = value - problem.sample(place(point), blocks, xi)
                    looked = looked | {point}
            old, exact = self.u.gather(1, blocks), self.exact_inner.gather(1, blocks)
            rows = advance(old, 1 - c.beta, inner_row, value, moved, exact)
            u = ((1 - c.beta) * u if method.shrinks else u).scatter(1, blocks, rows)
            self.last_visit.scatter_(1, blocks, t)
        pairs = 2 if method.slope_at is SlopeAt.PAIR else 1
        self.values += self.blocks * len(looked) * pairs
        self.gradients += self.blocks * (1 + len(gradient_row.points()))
        self.tables[Point.PREVIOUS], self.tables[Point.CURRENT] = self.u, u
        self.places[Point.PREVIOUS] = self.w
        self.u, self.z, self.step = u, z, t
        decay = 1 - c.lr * self.recipe.weight_decay
        self.w = decay * self.w - c.lr * self._direction(z)

    def _gamma(self, c: Coefficients, blocks: Tensor, t: int) -> Scalar:
        if c.gamma == "theory":
            return gamma_theory(c.beta, self.problem.num_blocks, self.blocks)
        if c.gamma == "age":
            return gamma_age(c.alpha, c.beta, t - self.last_visit.gather(1, blocks))
        if isinstance(c.gamma, str):
            return gamma_storm(c.beta)
        return c.gamma

    def _direction(self, z: Tensor) -> Tensor:
        """The step rules, run by run."""
        rule = self.recipe.update
        norm: Tensor = z.norm(dim=1, keepdim=True).clamp_min(torch.finfo(z.dtype).tiny)
        if isinstance(rule, Plain):
            return z
        if isinstance(rule, Normalized):
            return z / norm
        if isinstance(rule, Projected):
            return z * (rule.radius / norm).clamp(max=1.0)
        if isinstance(rule, SecondMoment):
            self.h = rule.beta2 * self.h + (1 - rule.beta2) * z.square()
            self.h_max = torch.maximum(self.h_max, self.h)
            h = self.h_max if "h_max" in rule.moments else self.h
            if rule.bias_correction:
                h = h / (1 - rule.beta2**self.step)
            clip = 1.0 if rule.radius is None else (rule.radius / norm).clamp(max=1.0)
            return clip * z / (h.sqrt() + rule.eps)
        raise TypeError(f"a sweep knows no {type(rule).__name__}")

    def run(self, tick: Callable[[int], None] = lambda steps: None) -> Traces:
        """All steps of the recipe; ``tick`` is told of every 256 of them."""
        total, m = self.recipe.num_steps, self.problem.num_blocks
        gradient = torch.zeros(self.runs, dtype=torch.float64)
        error, tracking = torch.zeros_like(gradient), torch.zeros_like(gradient)
        gaps = []
        for stage in self.recipe.stages:
            for step in range(1, stage.num_steps + 1):
                every = self.recipe.snapshot_every or math.inf
                due = self.snapshot_step == 0 or self.step + 1 - self.snapshot_step >= every
                if self.method.anchored and (due or (step == 1 and stage.exact)):
                    self.snapshot()
                exact = self.problem.gradient(self.w)
                inner = self.problem.exact_inner(self.w)
                self.advance(stage.coefficients(step))
                gradient += exact.norm(dim=1) / total
                error += (self.z - exact).norm(dim=1) / total
                if 2 * self.step > total and self.method.inner is not None:
                    tracking += (self.u - inner).square().sum(1) / (m * (total - total // 2))
                if self.step % 256 == 0:
                    tick(256)
            gaps.append(self.problem.value(self.w) - self.problem.value(self.problem.w_star))
        return Traces(gradient, error, tracking, torch.stack(gaps), (self.values, self.gradients))


def with_gamma(recipe: Recipe, gamma: float | str) -> Recipe:
    """The same recipe with another correction: a negative control."""

    def changed(stage: Stage) -> Stage:
        def coefficients(t: int) -> Coefficients:
            return replace(stage.coefficients(t), gamma=gamma)

        return replace(stage, coefficients=coefficients)

    return replace(recipe, stages=tuple(map(changed, recipe.stages)))
