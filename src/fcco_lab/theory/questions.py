"""The questions: every theorem measured over horizons and seeds, with controls."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fcco.methods.coefficients import gamma_theory
from fcco.schedules import RECIPES
from fcco_lab.theory.phase_noise import PhaseNoise
from fcco_lab.theory.sweep import Sweep

__all__ = ["QUESTIONS", "Cell", "Fit", "Question", "fit", "measure"]

M, B1, N = 16, 2, 8
"""Blocks, blocks probed and finite-sum size of the measurements, unless a question sweeps them."""


@dataclass(frozen=True)
class Question:
    """One row of the table.

    Args:
        key: its name in the results.
        theorem: as numbered in the paper.
        quantity: a description of the measured quantity.
        claimed: the exponent of the theory.
        source: the label of the recipe that is run or, for the error of u on a prescribed path, its
            correction: "none", "storm" or "theory".
        axis: "T", "m", "N" (samples) or "stage".
        size: the meaning of the size of a cell: "T", "m", "stages" or "accuracy".
        tolerance: how far the measured exponent may be from the claimed one.
        control: a negative control: the rate must *not* appear.
        phi: the outer function.
        options: further arguments of the recipe.
    """

    key: str
    theorem: str
    quantity: str
    claimed: float
    source: str
    axis: str
    size: str
    tolerance: float
    control: bool
    phi: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """A question at one horizon: the unit that is run, stored and resumed."""

    key: str
    x: int
    runs: int

    @property
    def name(self) -> str:
        """Unique among the results."""
        return f"{self.key} @ {self.x} x {self.runs}"


_NORM, _ERROR, _TRACK = "‖∇F‖", "‖z−∇F‖", "‖u−g‖²/m"
_STAGES, _STAGES_LOG, _CONVEX = "gap, PL", "log2 gap", "gap, convex"
_KINDS: dict[str, dict[str, Any]] = {
    _STAGES: {"axis": "N", "size": "stages", "tolerance": 0.12, "phi": "quadratic"},
    _STAGES_LOG: {"axis": "stage", "size": "stages", "tolerance": 0.12, "phi": "quadratic"},
    _CONVEX: {"axis": "N", "size": "accuracy", "tolerance": 0.12, "phi": "log-cosh"},
}
"""What differs from a quantity along runs of growing length."""


def _ask(key: str, quantity: str, claimed: float, source: str, **options: Any) -> Question:
    """The key is a kind and a theorem; ``options`` that are no fields are for the recipe."""
    kind, *words = key.split("-")
    given: dict[str, Any] = {"axis": "T", "size": "T", "tolerance": 0.08, "phi": "log-cosh"}
    given |= _KINDS.get(quantity, {}) | {"control": claimed == 0}
    given |= {name: options.pop(name) for name in ("axis", "size", "phi") if name in options}
    theorem = words[0] if kind == "track" else " ".join(words)
    return Question(key, theorem, quantity, claimed, source, **given, options=options)


QUESTIONS: dict[str, Question] = {
    question.key: question
    for question in (
        _ask("track-1", _TRACK, -1 / 2, "none"),
        _ask("track-4", _TRACK, -2 / 3, "theory"),
        _ask("track-4-storm", f"{_TRACK}, γ=1−β", 0.0, "storm"),
        _ask("track-4-average", f"{_TRACK}, γ=0", 0.0, "none"),
        _ask("track-1-m", _TRACK, 1 / 2, "none", axis="m", size="m"),
        _ask("track-4-m", _TRACK, 2 / 3, "theory", axis="m", size="m"),
        _ask("norm-1", _NORM, -1 / 4, "new:1"),
        _ask("norm-1-linear", _NORM, -1 / 4, "new:1/linear", phi="quadratic"),
        _ask("norm-2", _NORM, -1 / 4, "thm:1"),
        _ask("norm-3", _NORM, -1 / 3, "thm:2"),
        _ask("norm-4", _NORM, -1 / 3, "new:2"),
        _ask("error-4", _ERROR, -1 / 3, "new:2"),
        _ask("norm-4-linear", _NORM, -1 / 3, "new:2/linear", phi="quadratic"),
        _ask("error-4-literal", _ERROR, 0.0, "new:2/literal", phi="quadratic"),
        _ask("norm-5", _NORM, -1 / 2, "thm:3", n=N),
        _ask("norm-6", _NORM, -1 / 2, "new:3", n=N),
        _ask("norm-6-linear", _NORM, -1 / 2, "new:3/linear", phi="quadratic", n=N),
        _ask("error-6-literal", _ERROR, 0.0, "new:3/literal", phi="quadratic", n=N),
        _ask("norm-13", _NORM, -1 / 3, "adam", delta=1.0),
        # The stage-wise theorems do not fix their O(.) constants; with all of them 1 most of these
        # runs diverge, because mu = L = 1 and the noise is as large as the gradient.
        _ask("gap-7", _STAGES, -1.0, "thm:4", c_eta=0.3, c_T=20 / 3),
        _ask("gap-8", _STAGES, -1.0, "thm:4+", c_eta=0.3, c_beta=0.3, c_T=20 / 3),
        _ask("gap-9", _STAGES_LOG, -1.0, "thm:6", n=N, c_eta=0.3, c_T=4),
        _ask("gap-10", _STAGES, -1.0, "new:4", c_alpha=0.1),
        _ask("gap-11", _STAGES, -1.0, "new:5", c_eta=0.1),
        _ask("gap-12", _STAGES_LOG, -1.0, "new:6", n=N, c_eta=0.3, c_T=8),
        _ask("convex-7", _CONVEX, -1 / 3, "thm:4", c_eta=0.3, c_T=2, larger=True),
        _ask("convex-8", _CONVEX, -1 / 2, "thm:4+", c_eta=0.3, c_T=2),
        _ask("convex-9", _CONVEX, -1.0, "thm:6", n=N, c_eta=0.3, c_T=2),
        _ask("convex-10", _CONVEX, -1 / 3, "new:4", phi="quadratic"),
        _ask("convex-11", _CONVEX, -1 / 2, "new:5", phi="quadratic", c_eta=0.1),
        _ask("convex-12", _CONVEX, -1.0, "new:6", phi="quadratic", n=N, c_eta=0.3, c_T=8),
    )
}
"""The questions by key; one that claims an exponent of 0 is a control."""


def measure(cell: Cell, *, seed: int = 0) -> dict[str, Any]:
    """Run one cell: the points on the axis, and for each the values of all runs."""
    question = QUESTIONS[cell.key]
    run = _run_recipe if question.source in RECIPES else _follow_path
    xs, values = run(question, cell.x, cell.runs, seed)
    return {"name": cell.name, "key": cell.key, "xs": xs, "values": values.tolist()}


def _run_recipe(question: Question, x: int, runs: int, seed: int) -> tuple[list[float], Tensor]:
    """A mean along runs of x steps, or the gaps of x stages, or the gap at accuracy 2^-(x/2)."""
    options = question.options
    in_stages = question.size in ("stages", "accuracy")
    finite = N if "n" in options else None
    problem = PhaseNoise(M, phi=question.phi, inner_size=finite, isotropic=in_stages)
    sizes: dict[str, Any] = {"T": x}
    if question.size == "stages":
        gap = float(problem.value(problem.start) - problem.optimum)
        sizes = {"mu": problem.mu, "epsilon": gap / 2**x, "epsilon_0": gap}
    elif question.size == "accuracy":
        # F is convex, not strongly: F + (mu/2) ||w||^2 with mu = epsilon / D is run stage-wise,
        # and the gap is that of F.
        epsilon = 2.0 ** -(x / 2)
        sizes = {"mu": epsilon, "epsilon": epsilon, "epsilon_0": 1.0, "convex": True}
    recipe = RECIPES[question.source](m=M, B1=B1, **sizes, **options)
    shift = 0 if question.size == "stages" else x
    traces = Sweep(problem, recipe, blocks=B1, runs=runs, seed=seed + shift).run()
    if question.size == "T":
        mean = traces.gradient if question.quantity == _NORM else traces.error
        return [float(x)], mean.unsqueeze(0)
    if question.size == "accuracy":
        return [float(B1 * recipe.num_steps)], traces.gaps[-1:]
    if question.axis == "stage":
        return [float(stage) for stage in range(1, len(traces.gaps) + 1)], traces.gaps
    steps = torch.tensor([stage.num_steps for stage in recipe.stages]).cumsum(0)
    return [float(B1 * n) for n in steps], traces.gaps


def _follow_path(question: Question, x: int, runs: int, seed: int) -> tuple[list[float], Tensor]:
    """Tracking error on a prescribed path: a circle, in steps of the theorem's eta.

    The mean of ||u - g(w)||^2 / m over the second half, with the beta of the theorem, for a horizon
    of x or, against m, of 4096.
    """
    num_steps, m = (x, M) if question.size == "T" else (4096, x)
    if question.theorem == "1":
        beta = min(1.0, math.sqrt(m / (B1 * num_steps)))
        eta = math.pow(B1 / m, 1 / 4) * math.pow(num_steps, -3 / 4)
    else:
        beta = min(0.5, math.pow(m / (B1 * num_steps), 2 / 3))
        eta = math.pow(B1 / m, 1 / 3) * math.pow(num_steps, -2 / 3)
    gamma = 1 - beta if question.source == "storm" else 0.0
    if question.source == "theory":
        gamma = gamma_theory(beta, m, B1)
    problem = PhaseNoise(m, dim=2, noise=0.5, distinct=8)
    generator = torch.Generator().manual_seed(seed + num_steps + m)

    def place(t: int) -> Tensor:
        return torch.tensor([math.cos(eta * t), math.sin(eta * t)], dtype=torch.float64)

    noise = torch.randn((runs, m), generator=generator, dtype=torch.float64) / math.sqrt(2)
    u = problem.exact_inner(place(0)).expand(runs, m) + 0.5 * noise
    total = torch.zeros(runs, dtype=torch.float64)
    for t in range(1, num_steps + 1):
        now, before = place(t).expand(runs, 2), place(t - 1).expand(runs, 2)
        blocks = torch.rand((runs, m), generator=generator).argsort(1)[:, :B1]
        xi = problem.phases((runs, B1), generator)
        g = problem.sample(now, blocks, xi)
        change = g - problem.sample(before, blocks, xi)
        u.scatter_(1, blocks, (1 - beta) * u.gather(1, blocks) + beta * g + gamma * change)
        if 2 * t > num_steps:
            error = (u - problem.exact_inner(now)).square().mean(1)
            total += error / (num_steps - num_steps // 2)
    return [float(x)], total.unsqueeze(0)


class Fit(NamedTuple):
    """A fitted exponent with a bootstrap interval over seeds."""

    slope: float
    low: float
    high: float


def fit(xs: Sequence[float], values: Sequence[Tensor], *, resamples: int = 400) -> Fit:
    """The exponent of mean value ~ x^slope, by least squares in logarithms.

    The interval contains 95 % of refits to resampled seeds, drawn separately at every x.

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
    low, high = torch.quantile(slope(again), torch.tensor([0.025, 0.975], dtype=torch.float64))
    return Fit(round(float(slope(means)), 6), float(low), float(high))
