"""The questions: every theorem measured over horizons and seeds, with controls."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fcco_lab.rates.measurements import (
    Measurement,
    N,
    along_the_run,
    by_stage,
    convex,
    linear,
    path,
)

__all__ = ["QUESTIONS", "Cell", "Fit", "Question", "fit", "measure"]


@dataclass(frozen=True)
class Question:
    """One row of the table.

    Args:
        key: its name in the results.
        theorem: as numbered in the paper.
        quantity: a description of the measured quantity.
        claimed: the exponent of the theory, or None.
        axis: "T", "m", "N" (samples) or "stage".
        measure: (size, runs, seed) to the points on the axis and values of shape (points, runs).
        tolerance: how far the measured exponent may be from the claimed one.
        control: a negative control: the rate must *not* appear.
        size: the meaning of the first argument of ``measure``: "T", "m", "stages" or "accuracy".
    """

    key: str
    theorem: str
    quantity: str
    claimed: float | None
    axis: str
    measure: Measurement
    tolerance: float = 0.08
    control: bool = False
    size: str = "T"


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


def _question(*arguments: Any, **options: Any) -> tuple[str, Question]:
    question = Question(*arguments, **options)
    return question.key, question


def _stages(theorem: str, measure: Measurement, axis: str = "N") -> tuple[str, Question]:
    quantity = "log2 gap" if axis == "stage" else "gap, PL"
    return _question(
        f"gap-{theorem}", theorem, quantity, -1.0, axis, measure, tolerance=0.12, size="stages"
    )


def _accuracy(theorem: str, claimed: float, measure: Measurement) -> tuple[str, Question]:
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
        _question("track-1", "1", _TRACK, -1 / 2, "T", path(1, "none")),
        _question("track-4", "4", _TRACK, -2 / 3, "T", path(4, "theory")),
        _question(
            "track-4-storm",
            "4",
            f"{_TRACK}, γ=1−β",
            0.0,
            "T",
            path(4, "storm"),
            control=True,
        ),
        _question(
            "track-4-average", "4", f"{_TRACK}, γ=0", 0.0, "T", path(4, "none"), control=True
        ),
        _question("track-1-m", "1", _TRACK, 1 / 2, "m", path(1, "none", "m"), size="m"),
        _question("track-4-m", "4", _TRACK, 2 / 3, "m", path(4, "theory", "m"), size="m"),
        _question(
            "norm-1", "1", _NORM, -1 / 4, "T", along_the_run("new:1", "gradient", "log-cosh")
        ),
        _question(
            "norm-1-linear",
            "1 linear",
            _NORM,
            -1 / 4,
            "T",
            along_the_run("new:1/linear", "gradient", "quadratic"),
        ),
        _question(
            "norm-2", "2", _NORM, -1 / 4, "T", along_the_run("thm:1", "gradient", "log-cosh")
        ),
        _question(
            "norm-3", "3", _NORM, -1 / 3, "T", along_the_run("thm:2", "gradient", "log-cosh")
        ),
        _question(
            "norm-4", "4", _NORM, -1 / 3, "T", along_the_run("new:2", "gradient", "log-cosh")
        ),
        _question("error-4", "4", _ERROR, -1 / 3, "T", along_the_run("new:2", "error", "log-cosh")),
        _question(
            "norm-4-linear",
            "4 linear",
            _NORM,
            -1 / 3,
            "T",
            along_the_run("new:2/linear", "gradient", "quadratic"),
        ),
        _question(
            "error-4-literal",
            "4 literal",
            _ERROR,
            0.0,
            "T",
            along_the_run("new:2/literal", "error", "quadratic"),
            control=True,
        ),
        _question(
            "norm-5", "5", _NORM, -1 / 2, "T", along_the_run("thm:3", "gradient", "log-cosh", n=N)
        ),
        _question(
            "norm-6", "6", _NORM, -1 / 2, "T", along_the_run("new:3", "gradient", "log-cosh", n=N)
        ),
        _question(
            "norm-6-linear",
            "6 linear",
            _NORM,
            -1 / 2,
            "T",
            along_the_run("new:3/linear", "gradient", "quadratic", n=N),
        ),
        _question(
            "error-6-literal",
            "6 literal",
            _ERROR,
            0.0,
            "T",
            along_the_run("new:3/literal", "error", "quadratic", n=N),
            control=True,
        ),
        _question(
            "norm-13",
            "13",
            _NORM,
            -1 / 3,
            "T",
            along_the_run("adam", "gradient", "log-cosh", delta=1.0),
        ),
        # The stage-wise theorems do not fix their O(.) constants; with all of them 1 most of these
        # runs diverge, because mu = L = 1 and the noise is as large as the gradient.
        _stages("7", by_stage("thm:4", c_eta=0.3, c_T=20 / 3)),
        _stages("8", by_stage("thm:4+", c_eta=0.3, c_beta=0.3, c_T=20 / 3)),
        _stages("9", linear("thm:6", n=N, c_eta=0.3, c_T=4), "stage"),
        _stages("10", by_stage("new:4", c_alpha=0.1)),
        _stages("11", by_stage("new:5", c_eta=0.1)),
        _stages("12", linear("new:6", n=N, c_eta=0.3, c_T=8), "stage"),
        _accuracy("7", -1 / 3, convex("thm:4", c_eta=0.3, c_T=2, larger=True)),
        _accuracy("8", -1 / 2, convex("thm:4+", c_eta=0.3, c_T=2)),
        _accuracy("9", -1.0, convex("thm:6", n=N, c_eta=0.3, c_T=2)),
        _accuracy("10", -1 / 3, convex("new:4", "quadratic")),
        _accuracy("11", -1 / 2, convex("new:5", "quadratic", c_eta=0.1)),
        _accuracy("12", -1.0, convex("new:6", "quadratic", n=N, c_eta=0.3, c_T=8)),
    ]
)
"""The questions by key."""


def measure(cell: Cell, *, seed: int = 0) -> dict[str, Any]:
    """Run one cell, and return its record."""
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
    refits = slope(again)
    low, high = torch.quantile(refits, torch.tensor([0.025, 0.975], dtype=torch.float64))
    return Fit(round(float(slope(means)), 6), float(low), float(high))
