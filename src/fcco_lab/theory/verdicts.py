"""From measured cells to exponents, verdicts and figures."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from fcco_lab.presentation.canvas import make_canvas, save, scale_as_log
from fcco_lab.theory.questions import QUESTIONS, Fit, Question, fit

__all__ = ["Verdict", "plot_verdict", "verdicts"]

SKIPPED_STAGES = 2
"""Stages left out of a fit: the first ones depend on the start."""


@dataclass(frozen=True)
class Verdict:
    """One row of the summary: the claimed and the measured exponent, and the verdict."""

    key: str
    theorem: str
    quantity: str
    axis: str
    claimed: float
    measured: Fit
    word: str
    xs: list[float]
    means: list[float]
    spreads: list[float]

    def as_record(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self) | {"measured": self.measured._asdict()}


def verdicts(records: Iterable[Mapping[str, Any]]) -> list[Verdict]:
    """Fit every question that has at least three points."""
    points: dict[str, dict[float, list[float]]] = {}
    for record in records:
        for x, values in zip(record["xs"], record["values"], strict=True):
            points.setdefault(record["key"], {})[x] = values
    result = []
    for key, question in QUESTIONS.items():
        here = points.get(key, {})
        if len(here) < 3:
            continue
        xs = sorted(here)
        values = [torch.tensor(here[x], dtype=torch.float64) for x in xs]
        skip = SKIPPED_STAGES if question.size == "stages" and len(xs) > 5 else 0
        fitted = fit(_positions(question.axis, xs)[skip:], values[skip:])
        means = [float(v.mean()) for v in values]
        spreads = [float(v.std() / len(v) ** 0.5) for v in values]
        about = (key, question.theorem, question.quantity, question.axis, question.claimed)
        result.append(Verdict(*about, fitted, judge(question, fitted), xs, means, spreads))
    return result


def _positions(axis: str, xs: list[float]) -> list[float]:
    """A stage is a power of two, so that the slope is the log2 of the gap per stage."""
    return [2.0**x for x in xs] if axis == "stage" else xs


def judge(question: Question, fitted: Fit) -> str:
    """One word or two.

    Examples:
        >>> judge(QUESTIONS["norm-1"], Fit(-0.26, -0.3, -0.2))
        'appears'
        >>> judge(QUESTIONS["track-4-storm"], Fit(-0.03, -0.05, 0.0))
        'flat (control)'
    """
    if question.control:
        return "flat (control)" if fitted.slope > -0.15 else "falls: no control"
    if question.axis == "stage":
        return "linear" if fitted.high < -0.5 else "not linear"
    if abs(fitted.slope - question.claimed) <= question.tolerance:
        return "appears"
    below = fitted.slope < question.claimed
    if question.axis == "m":
        return "flatter" if below else "steeper"
    return "faster" if below else "slower"


def plot_verdict(verdict: Verdict, path: Path) -> None:
    """Means with two standard errors, the fitted line and the claimed one."""
    xs, means = verdict.xs, verdict.means
    figure, axes = make_canvas(1, xlabels=[verdict.axis], ylabel=verdict.quantity, narrow=True)
    spreads = [2 * spread for spread in verdict.spreads]
    axes[0].errorbar(xs, means, spreads, fmt="o", capsize=3, label="measured, ±2 s.e.")
    steps = _positions(verdict.axis, xs)
    for word, style, slope in (
        ("fitted", "-", verdict.measured.slope),
        ("claimed", "--", verdict.claimed),
    ):
        heights = [means[-1] * (step / steps[-1]) ** slope for step in steps]
        axes[0].plot(xs, heights, style, label=f"{word} {slope:.2f}")
    if verdict.axis != "stage":
        axes[0].set_xscale("log", base=2)
    scale_as_log(axes[0], bottom=min(means) / 2)
    axes[0].legend(fontsize="small")
    save(figure, axes, path, order=(), title=f"Theorem {verdict.theorem}")
