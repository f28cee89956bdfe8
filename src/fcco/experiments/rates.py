"""Which rates appear: every theorem measured over horizons and seeds, with controls."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fcco.coefficients import gamma_storm, gamma_theory
from fcco.experiments.sweep import Sweep
from fcco.methods.msvrm_v1 import msvr
from fcco.point import Point
from fcco.problems import PhaseNoise
from fcco.recursion import advance
from fcco.schedules import RECIPES

__all__ = ["QUESTIONS", "Cell", "Fit", "Question", "fit", "measure"]

M, B1, N = 16, 2, 8
"""Blocks, blocks probed and finite-sum size of the measurements, unless a question sweeps them."""


@dataclass(frozen=True)
class Question:
    """One row of the table.

    Args:
        key: its name in the results.
        theorem: as numbered in the paper.
        quantity: what is measured, in words.
        claimed: the exponent of the theory, or None.
        axis: "T", "m", "N" (samples) or "stage".
        measure: (size, runs, seed) to the points on the axis and values of shape (points, runs).
        tolerance: how far the measured exponent may be from the claimed one.
        control: a negative control: the rate must *not* appear.
        size: what the first argument of ``measure`` is: "T", "m", "stages" or "accuracy".
    """

    key: str
    theorem: str
    quantity: str
    claimed: float | None
    axis: str
    measure: Callable[[int, int, int], tuple[list[float], Tensor]]
    tolerance: float = 0.08
    control: bool = False
    size: str = "T"


@dataclass(frozen=True)
class Cell:
    """A question at one horizon: what is run, stored and resumed."""

    key: str
    x: int
    runs: int

    @property
    def name(self) -> str:
        """Unique among the results."""
        return f"{self.key} @ {self.x} x {self.runs}"


def _along_the_run(label: str, quantity: str, phi: str, **options: Any) -> Callable[..., Any]:
    """A mean over the steps of a run with the recipe for T."""

    def run(horizon: int, runs: int, seed: int) -> tuple[list[float], Tensor]:
        finite = "n" in options
        problem = PhaseNoise(M, phi=phi, inner_size=N if finite else None)
        recipe = RECIPES[label](m=M, B1=B1, T=horizon, **options)
        traces = Sweep(problem, recipe, blocks=B1, runs=runs, seed=seed + horizon).run()
        return [float(horizon)], getattr(traces, quantity).unsqueeze(0)

    return run


def _by_stage(label: str, **options: Any) -> Callable[..., Any]:
    """The gap at the end of each stage against the samples used so far; x is the last stage."""

    def run(stages: int, runs: int, seed: int) -> tuple[list[float], Tensor]:
        finite = "n" in options
        problem = PhaseNoise(M, phi="quadratic", inner_size=N if finite else None, isotropic=True)
        gap = float(problem.value(problem.start) - problem.optimum)
        recipe = RECIPES[label](
            m=M, B1=B1, mu=problem.mu, epsilon=gap / 2**stages, epsilon_0=gap, **options
        )
        traces = Sweep(problem, recipe, blocks=B1, runs=runs, seed=seed).run()
        steps = torch.tensor([stage.num_steps for stage in recipe.stages]).cumsum(0)
        return [float(B1 * n) for n in steps], traces.gaps

    return run


def _linear(label: str, **options: Any) -> Callable[..., Any]:
    """The same against the number of the stage."""
    by_stage = _by_stage(label, **options)

    def run(stages: int, runs: int, seed: int) -> tuple[list[float], Tensor]:
        _, gaps = by_stage(stages, runs, seed)
        return [float(s) for s in range(1, len(gaps) + 1)], gaps

    return run


def _convex(label: str, phi: str = "log-cosh", **options: Any) -> Callable[..., Any]:
    """The gap of a convex, not strongly convex objective at accuracy 2^-k, against the samples.

    F + (mu/2) ||w||^2 with mu = epsilon / D is run stage-wise; the gap is F's own.
    """

    def run(power: int, runs: int, seed: int) -> tuple[list[float], Tensor]:
        finite = "n" in options
        problem = PhaseNoise(M, phi=phi, inner_size=N if finite else None, isotropic=True)
        epsilon = 2.0 ** -(power / 2)
        recipe = RECIPES[label](
            m=M, B1=B1, mu=epsilon, epsilon=epsilon, epsilon_0=1.0, convex=True, **options
        )
        traces = Sweep(problem, recipe, blocks=B1, runs=runs, seed=seed + power).run()
        return [float(B1 * recipe.num_steps)], traces.gaps[-1:]

    return run


def path_error(
    num_steps: int, num_blocks: int, runs: int, seed: int, *, theorem: int, correction: str
) -> Tensor:
    """Tracking error on a prescribed path: a circle, in steps of the theorem's eta.

    The second half's mean of ||u - g(w)||^2 / m, with the theorem's beta; ``correction`` is
    "none", "storm" or "theory".
    """
    m = num_blocks
    if theorem == 1:
        beta = min(1.0, math.sqrt(m / (B1 * num_steps)))
        eta = math.pow(B1 / m, 1 / 4) * math.pow(num_steps, -3 / 4)
    else:
        beta = min(0.5, math.pow(m / (B1 * num_steps), 2 / 3))
        eta = math.pow(B1 / m, 1 / 3) * math.pow(num_steps, -2 / 3)
    gamma = {"none": 0.0, "storm": gamma_storm(beta), "theory": gamma_theory(beta, m, B1)}
    row = msvr(beta, gamma[correction], m / B1)
    problem = PhaseNoise(m, dim=2, noise=0.5, distinct=8)
    generator = torch.Generator().manual_seed(seed + num_steps + m)

    def place(t: int) -> Tensor:
        angle = eta * t
        return torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)

    u = problem.exact_inner(place(0)).expand(runs, m) + 0.5 * torch.randn(
        (runs, m), generator=generator, dtype=torch.float64
    ) / math.sqrt(2)
    total = torch.zeros(runs, dtype=torch.float64)
    for t in range(1, num_steps + 1):
        now, before = place(t).expand(runs, 2), place(t - 1).expand(runs, 2)
        blocks = torch.rand((runs, m), generator=generator).argsort(1)[:, :B1]
        xi = problem.phases((runs, B1), generator)
        value = problem.sample(now, blocks, xi)
        change = value - problem.sample(before, blocks, xi)
        rows = advance(u.gather(1, blocks), 1 - beta, row, value, {Point.PREVIOUS: change})
        u = u.scatter(1, blocks, rows)
        if 2 * t > num_steps:
            error = (u - problem.exact_inner(now)).square().mean(1)
            total += error / (num_steps - num_steps // 2)
    return total


def _path(theorem: int, correction: str, sweep: str = "T") -> Callable[..., Any]:
    def run(x: int, runs: int, seed: int) -> tuple[list[float], Tensor]:
        horizon, m = (x, M) if sweep == "T" else (4096, x)
        error = path_error(horizon, m, runs, seed, theorem=theorem, correction=correction)
        return [float(x)], error.unsqueeze(0)

    return run


def _question(*arguments: Any, **options: Any) -> tuple[str, Question]:
    question = Question(*arguments, **options)
    return question.key, question


def _stages(theorem: str, measure: Callable[..., Any], axis: str = "N") -> tuple[str, Question]:
    quantity = "log2 gap" if axis == "stage" else "gap, PL"
    return _question(
        f"gap-{theorem}", theorem, quantity, -1.0, axis, measure, tolerance=0.12, size="stages"
    )


def _accuracy(theorem: str, claimed: float, measure: Callable[..., Any]) -> tuple[str, Question]:
    return _question(
        f"convex-{theorem}",
        theorem,
        "gap, convex",
        claimed,
        "N",
        measure,
        tolerance=0.12,
        size="accuracy",
    )


_NORM, _ERROR, _TRACK = "‖∇F‖", "‖z−∇F‖", "‖u−g‖²/m"

QUESTIONS: dict[str, Question] = dict(
    [
        _question("track-1", "1", _TRACK, -1 / 2, "T", _path(1, "none")),
        _question("track-4", "4", _TRACK, -2 / 3, "T", _path(4, "theory")),
        _question(
            "track-4-storm",
            "4",
            f"{_TRACK}, γ=1−β",
            0.0,
            "T",
            _path(4, "storm"),
            control=True,
        ),
        _question(
            "track-4-average", "4", f"{_TRACK}, γ=0", 0.0, "T", _path(4, "none"), control=True
        ),
        _question("track-1-m", "1", _TRACK, 1 / 2, "m", _path(1, "none", "m"), size="m"),
        _question("track-4-m", "4", _TRACK, 2 / 3, "m", _path(4, "theory", "m"), size="m"),
        _question(
            "norm-1", "1", _NORM, -1 / 4, "T", _along_the_run("new:1", "gradient", "log-cosh")
        ),
        _question(
            "norm-1-linear",
            "1 linear",
            _NORM,
            -1 / 4,
            "T",
            _along_the_run("new:1/linear", "gradient", "quadratic"),
        ),
        _question(
            "norm-2", "2", _NORM, -1 / 4, "T", _along_the_run("thm:1", "gradient", "log-cosh")
        ),
        _question(
            "norm-3", "3", _NORM, -1 / 3, "T", _along_the_run("thm:2", "gradient", "log-cosh")
        ),
        _question(
            "norm-4", "4", _NORM, -1 / 3, "T", _along_the_run("new:2", "gradient", "log-cosh")
        ),
        _question(
            "error-4", "4", _ERROR, -1 / 3, "T", _along_the_run("new:2", "error", "log-cosh")
        ),
        _question(
            "norm-4-linear",
            "4 linear",
            _NORM,
            -1 / 3,
            "T",
            _along_the_run("new:2/linear", "gradient", "quadratic"),
        ),
        _question(
            "error-4-literal",
            "4 literal",
            _ERROR,
            0.0,
            "T",
            _along_the_run("new:2/literal", "error", "quadratic"),
            control=True,
        ),
        _question(
            "norm-5", "5", _NORM, -1 / 2, "T", _along_the_run("thm:3", "gradient", "log-cosh", n=N)
        ),
        _question(
            "norm-6", "6", _NORM, -1 / 2, "T", _along_the_run("new:3", "gradient", "log-cosh", n=N)
        ),
        _question(
            "norm-6-linear",
            "6 linear",
            _NORM,
            -1 / 2,
            "T",
            _along_the_run("new:3/linear", "gradient", "quadratic", n=N),
        ),
        _question(
            "error-6-literal",
            "6 literal",
            _ERROR,
            0.0,
            "T",
            _along_the_run("new:3/literal", "error", "quadratic", n=N),
            control=True,
        ),
        _question(
            "norm-13",
            "13",
            _NORM,
            -1 / 3,
            "T",
            _along_the_run("adam", "gradient", "log-cosh", delta=1.0),
        ),
        # The O(.) constants of the stage-wise theorems are ours to choose; with all of them 1 most
        # of these runs diverge, mu = L = 1 and noise of the size of the gradient.
        _stages("7", _by_stage("thm:4", c_eta=0.3, c_T=20 / 3)),
        _stages("8", _by_stage("thm:4+", c_eta=0.3, c_beta=0.3, c_T=20 / 3)),
        _stages("9", _linear("thm:6", n=N, c_eta=0.3, c_T=4), "stage"),
        _stages("10", _by_stage("new:4", c_alpha=0.1)),
        _stages("11", _by_stage("new:5", c_eta=0.1)),
        _stages("12", _linear("new:6", n=N, c_eta=0.3, c_T=8), "stage"),
        _accuracy("7", -1 / 3, _convex("thm:4", c_eta=0.3, c_T=2, larger=True)),
        _accuracy("8", -1 / 2, _convex("thm:4+", c_eta=0.3, c_T=2)),
        _accuracy("9", -1.0, _convex("thm:6", n=N, c_eta=0.3, c_T=2)),
        _accuracy("10", -1 / 3, _convex("new:4", "quadratic")),
        _accuracy("11", -1 / 2, _convex("new:5", "quadratic", c_eta=0.1)),
        _accuracy("12", -1.0, _convex("new:6", "quadratic", n=N, c_eta=0.3, c_T=8)),
    ]
)
"""What is measured, by key."""


def measure(cell: Cell, *, seed: int = 0) -> dict[str, Any]:
    """Run one cell; the record that is stored."""
    xs, values = QUESTIONS[cell.key].measure(cell.x, cell.runs, seed)
    return {"name": cell.name, "key": cell.key, "xs": xs, "values": values.tolist()}


@dataclass(frozen=True)
class Fit:
    """A fitted exponent with a bootstrap interval over seeds."""

    slope: float
    low: float
    high: float


def fit(xs: Sequence[float], values: Sequence[Tensor], *, resamples: int = 400) -> Fit:
    """The exponent of mean value ~ x^slope, by least squares in logarithms.

    The interval holds 95 % of refits on seeds drawn again with replacement, at every x apart.

    Examples:
        >>> xs = [1.0, 2.0, 4.0]
        >>> fit(xs, [torch.full((8,), x**-0.5) for x in xs]).slope
        -0.5
    """
    x = torch.tensor(xs, dtype=torch.float64).log2()
    x = x - x.mean()
    generator = torch.Generator().manual_seed(0)

    def slope(means: Tensor) -> Tensor:
        return (x.unsqueeze(1) * means.log2()).sum(0) / x.square().sum()

    means = torch.stack([v.mean() for v in values]).unsqueeze(1)
    again = torch.stack(
        [v[torch.randint(len(v), (resamples, len(v)), generator=generator)].mean(1) for v in values]
    )
    refits = slope(again)
    low, high = torch.quantile(refits, torch.tensor([0.025, 0.975], dtype=torch.float64))
    return Fit(round(float(slope(means)), 6), float(low), float(high))
