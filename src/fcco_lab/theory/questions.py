"""The questions: every theorem measured over horizons and seeds, with controls."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fcco_lab.theory.measurements import (
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


_NORM, _ERROR, _TRACK = "‖∇F‖", "‖z−∇F‖", "‖u−g‖²/m"


def _tracking(key: str, claimed: float, measure: Measurement, note: str = "") -> Question:
    """The error of u on a prescribed path; a ``note`` marks a control."""
    return Question(
        f"track-{key}", key[0], _TRACK + note, claimed, "T", measure, control=bool(note)
    )


def _tracking_by_m(theorem: int, claimed: float, correction: str) -> Question:
    measure = path(theorem, correction, "m")
    return Question(f"track-{theorem}-m", str(theorem), _TRACK, claimed, "m", measure, size="m")


def _horizons(
    theorem: str, claimed: float, label: str, *, phi: str = "log-cosh", **options: Any
) -> Question:
    """The norm of the gradient along runs of growing length."""
    measure = along_the_run(label, "gradient", phi, **options)
    return Question(f"norm-{theorem.replace(' ', '-')}", theorem, _NORM, claimed, "T", measure)


def _error(theorem: str, claimed: float, label: str, *, phi: str, **options: Any) -> Question:
    """The error of z along runs of growing length; for a recipe as printed, a control."""
    measure = along_the_run(label, "error", phi, **options)
    return Question(
        f"error-{theorem.replace(' ', '-')}",
        theorem,
        _ERROR,
        claimed,
        "T",
        measure,
        control=label.endswith("/literal"),
    )


def _stages(theorem: str, measure: Measurement, axis: str = "N") -> Question:
    """The gap after every stage."""
    quantity = "log2 gap" if axis == "stage" else "gap, PL"
    return Question(f"gap-{theorem}", theorem, quantity, -1.0, axis, measure, 0.12, size="stages")


def _accuracy(theorem: str, claimed: float, measure: Measurement) -> Question:
    """The samples that a convex problem needs for a gap."""
    key = f"convex-{theorem}"
    return Question(key, theorem, "gap, convex", claimed, "N", measure, 0.12, size="accuracy")


QUESTIONS: dict[str, Question] = {
    question.key: question
    for question in (
        _tracking("1", -1 / 2, path(1, "none")),
        _tracking("4", -2 / 3, path(4, "theory")),
        _tracking("4-storm", 0.0, path(4, "storm"), ", γ=1−β"),
        _tracking("4-average", 0.0, path(4, "none"), ", γ=0"),
        _tracking_by_m(1, 1 / 2, "none"),
        _tracking_by_m(4, 2 / 3, "theory"),
        _horizons("1", -1 / 4, "new:1"),
        _horizons("1 linear", -1 / 4, "new:1/linear", phi="quadratic"),
        _horizons("2", -1 / 4, "thm:1"),
        _horizons("3", -1 / 3, "thm:2"),
        _horizons("4", -1 / 3, "new:2"),
        _error("4", -1 / 3, "new:2", phi="log-cosh"),
        _horizons("4 linear", -1 / 3, "new:2/linear", phi="quadratic"),
        _error("4 literal", 0.0, "new:2/literal", phi="quadratic"),
        _horizons("5", -1 / 2, "thm:3", n=N),
        _horizons("6", -1 / 2, "new:3", n=N),
        _horizons("6 linear", -1 / 2, "new:3/linear", phi="quadratic", n=N),
        _error("6 literal", 0.0, "new:3/literal", phi="quadratic", n=N),
        _horizons("13", -1 / 3, "adam", delta=1.0),
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
    )
}
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
