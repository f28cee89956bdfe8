"""From measured cells to exponents, verdicts and figures."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from fcco_lab.files import write
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
    claimed: float | None
    measured: Fit
    word: str
    xs: list[float]
    means: list[float]
    spreads: list[float]

    def as_record(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)


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
        skip = SKIPPED_STAGES if question.axis in ("N", "stage") and len(xs) > 5 else 0
        fitted = _fit(question, xs[skip:], values[skip:])
        result.append(
            Verdict(
                key,
                question.theorem,
                question.quantity,
                question.axis,
                question.claimed,
                fitted,
                judge(question, fitted),
                xs,
                [float(v.mean()) for v in values],
                [float(v.std() / len(v) ** 0.5) for v in values],
            )
        )
    return result


def _fit(question: Question, xs: list[float], values: list[torch.Tensor]) -> Fit:
    # A stage is a power of two on the axis, so that the slope is the log2 of the gap per stage.
    return fit([2.0**x for x in xs] if question.axis == "stage" else xs, values)


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
    if question.claimed is None:
        return "measured"
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
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(5.2, 3.8), layout="constrained")
    xs, means = verdict.xs, verdict.means
    axes.errorbar(
        xs, means, [2 * s for s in verdict.spreads], fmt="o", capsize=3, label="measured, ±2 s.e."
    )
    steps = [2.0**x for x in xs] if verdict.axis == "stage" else xs
    last = len(xs) - 1
    for slope, style, name in (
        (verdict.measured.slope, "-", f"fitted {verdict.measured.slope:.2f}"),
        (verdict.claimed, "--", f"claimed {verdict.claimed or 0:.2f}"),
    ):
        if slope is not None:
            line = [means[last] * (s / steps[last]) ** slope for s in steps]
            axes.plot(xs, line, style, label=name)
    axes.set(yscale="log", xlabel=verdict.axis, ylabel=verdict.quantity)
    if verdict.axis != "stage":
        axes.set_xscale("log", base=2)
    axes.set_title(f"Theorem {verdict.theorem}")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize="small")
    write(path, lambda file: figure.savefig(file, format="png", dpi=80))
    plt.close(figure)
