"""Many runs of one recipe at once: the kernel on tensors with a leading dimension of runs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fcco.distributed import Share
from fcco.kernel.checks import Checks
from fcco.kernel.gradients import combined
from fcco.kernel.oracle import Look
from fcco.kernel.rows import rows_of
from fcco.kernel.safeguard import ChangeBound
from fcco.kernel.step import Step, take
from fcco.kernel.storage import zeros_in_memory
from fcco.kernel.writes import commit
from fcco.methods import Coefficients, Point, SlopeAt, Weights
from fcco.optim.memory import build_table
from fcco.problem import Objective, Probe
from fcco.problems import PhaseNoise
from fcco.schedules import Recipe

__all__ = ["Stacked", "Sweep", "Traces", "Trusted"]


@dataclass
class Traces:
    """Measurements during a run, one entry per run.

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


class Stacked(Objective):
    """Many runs of one problem as one problem: block i of run r is block r m + i."""

    inner_dim = 1

    def __init__(self, problem: PhaseNoise, runs: int) -> None:
        self.problem = problem
        self.num_blocks = runs * problem.num_blocks

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """f_i(u)."""
        return self.problem.outer(u, blocks % self.problem.num_blocks)

    def outer_slope(self, u: Tensor, blocks: Tensor) -> Tensor:
        """f_i'(u), in closed form."""
        return self.problem.slope(u[:, 0], blocks % self.problem.num_blocks).unsqueeze(1)


class Trusted(Checks):
    """No checks: the samples are our own."""

    def __init__(self, blocks: int) -> None:
        super().__init__(Share(blocks), 1, torch.device("cpu"))

    def probe(self, point: Point, k: int, probe: Probe) -> Tensor:
        """The blocks."""
        return probe.blocks

    def rows(self, rows: Tensor, blocks: Tensor, what: str) -> None:
        """Nothing."""


def run_norm(tensors: Sequence[Tensor]) -> Tensor:
    """The norms of all runs, (runs, 1)."""
    (tensor,) = tensors
    norm: Tensor = tensor.norm(dim=1, keepdim=True)
    return norm


class SweepOracle:
    """Evaluates one sample of every run at a point, in closed form; gradients stay separate.

    Args:
        problem: the problem of every run.
        places: w of every run at each point, (runs, dim).
        draw: blocks, phases and second phases of every run, (runs, B1).
        safeguard: bounds the change of the gradient, or None.
    """

    def __init__(
        self,
        problem: PhaseNoise,
        places: dict[Point, Tensor],
        draw: tuple[Tensor, Tensor, Tensor],
        safeguard: ChangeBound | None,
    ) -> None:
        self.problem, self.places, self.safeguard = problem, places, safeguard
        self.blocks, self.xi, self.pair = draw
        offset = torch.arange(len(self.blocks)).unsqueeze(1) * problem.num_blocks
        self.ids = (self.blocks + offset).flatten()
        self.gradients: dict[Point, list[Tensor]] = {}
        self.value_passes = 0

    def visit(
        self, point: Point, look: Look, *, weight: float | None, tangent: bool, last: bool
    ) -> None:
        """Values, slopes and the gradient in w, for each run."""
        problem, w, blocks = self.problem, self.places[point], self.blocks
        self.value_passes += 2 if tangent else 1
        values = problem.sample(w, blocks, self.xi).view(-1, 1)
        pair = problem.sample(w, blocks, self.pair).view(-1, 1)
        jacobian = derivative = None
        if tangent or weight is not None:
            jacobian = problem.jacobian(w, blocks, self.xi)
        if tangent and jacobian is not None:
            direction = (w - self.places[Point.PREVIOUS]).unsqueeze(-2)
            derivative = (jacobian * direction).sum(-1).view(-1, 1)
        pull = look(point, 0, Probe(self.ids, values, pair=pair), derivative)
        if pull is not None and jacobian is not None:
            slopes = pull.values.view(*blocks.shape, 1)
            # Divided by all probed blocks this is the mean over those of one run.
            self.gradients[point] = [len(blocks) * (slopes * jacobian).sum(-2)]

    def gradient(self, row: Weights) -> list[Tensor]:
        """The gradients of all runs, (runs, dim)."""
        return combined(self.gradients, row, self.safeguard, run_norm)


class Sweep:
    """Runs ``recipe`` from ``problem.start`` with ``runs`` independent seeds, batched.

    The step is the optimizer's own (``fcco.kernel.step``), on one problem that holds the blocks of
    all runs; only the oracle and the norms are batched. ``draw`` may be replaced to prescribe the
    samples.
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
        self.rows = rows_of(Stacked(problem, runs))
        self.w = problem.start.expand(runs, -1).clone()
        self.places = {Point.PREVIOUS: self.w, Point.SNAPSHOT: self.w}
        self.state = {"z": torch.zeros_like(self.w)} | recipe.update.init(self.w)
        self.anchor = torch.zeros_like(self.w)
        first = self._first_table()
        self.table = None
        if self.method.inner is not None:
            gamma = recipe.coefficients(1).gamma
            self.table = build_table(
                self.rows,
                self.method,
                Share(runs * problem.num_blocks),
                dtype=torch.float64,
                zeros=zeros_in_memory,
                gamma=gamma,
                inner_dim=1,
                initial=None if self.method.anchored else first.view(-1, 1),
            )
        self.step, self.snapshot_step = 0, 0
        self.values = self.gradients = 0
        self.draw: Callable[[], tuple[Tensor, Tensor, Tensor]] = self._draw

    @property
    def z(self) -> Tensor:
        """(runs, dim)."""
        return self.state["z"]

    @property
    def u(self) -> Tensor:
        """(runs, m); zero without a table."""
        shape = (self.runs, self.problem.num_blocks)
        if self.table is None:
            return torch.zeros(shape, dtype=torch.float64)
        return self.table.whole().view(shape)

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
        """The exact pass, in closed form; the queries count its cost."""
        problem, m = self.problem, self.problem.num_blocks
        exact = problem.exact_inner(self.w)
        u = exact
        if self.table is not None:
            rows, first = exact.view(-1, 1), self.snapshot_step == 0
            if first:
                commit(self.table.fill(rows, step=self.step))
            commit(self.table.keep_snapshot(rows, torch.ones(self.runs * m), filled=first))
            u = self.u
        slopes = problem.slope(u, torch.arange(m).expand(self.runs, m))
        self.anchor = (slopes.unsqueeze(-1) * problem.a).mean(-2)
        self.places[Point.SNAPSHOT] = self.w
        self.snapshot_step = self.step + 1
        cost = m * (problem.inner_size or 0)
        self.values += cost
        self.gradients += cost

    def advance(self, c: Coefficients) -> None:
        """One step of all runs."""
        method, t = self.method, self.step + 1
        here = (Point.PREVIOUS,) if t == 1 else ()
        total = self.runs * self.problem.num_blocks
        s = Step(
            method=method,
            coefficients=c,
            number=t,
            coincide=(*here, Point.SNAPSHOT) if self.snapshot_step == t else here,
            rows=self.rows,
            table=self.table,
            dtype=torch.float64,
            num_blocks=total,
            ranks=1,
            checks=Trusted(total),
        )
        places = self.places | {Point.CURRENT: self.w}
        oracle = SweepOracle(self.problem, places, self.draw(), self.safeguard)
        u, (z,) = take(s, oracle, [self.z], [self.anchor] if method.anchored else None)
        if self.table is not None:
            blocks, old = s.probed()
            commit(self.table.writes(blocks, old, u, step=t, beta=c.beta))
        pairs = 2 if method.slope_at is SlopeAt.PAIR else 1
        self.values += self.blocks * oracle.value_passes * pairs
        self.gradients += self.blocks * len(oracle.gradients)
        self.places[Point.PREVIOUS] = self.w
        self.state["z"], self.step = z, t
        (direction,) = self.recipe.update.directions([z], [self.state], run_norm)
        decay = 1 - c.lr * self.recipe.weight_decay
        self.w = decay * self.w - c.lr * direction

    def run(self, tick: Callable[[int], None] = lambda steps: None) -> Traces:
        """All steps of the recipe; ``tick`` is called every 256 steps."""
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
