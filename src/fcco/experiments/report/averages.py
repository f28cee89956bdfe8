"""Means over seeds: of a number at the end of runs, and of whole curves on a common grid."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcco.experiments.runs import Record, queries

__all__ = ["MeanCurve", "last", "latest", "mean_and_deviation", "mean_curve"]

MOST_POINTS = 120
"""More cannot be told apart on a screen, and every one is in the page nine times."""


@dataclass(frozen=True)
class MeanCurve:
    """The mean over seeds along an axis; ``deviation`` is empty with a single seed."""

    x: list[float]
    mean: list[float]
    deviation: list[float]


def last(record: Record, key: str) -> float:
    """A number at the end of a run or, before it has one, at its latest look; NaN if neither.

    Examples:
        >>> last({"auc": None, "curve": [{"auc": 0.5}, {"auc": 0.75}]}, "auc")
        0.75
    """
    if record.get(key) is not None:
        return float(record[key])
    return latest(record, key)


def latest(record: Record, key: str) -> float:
    """A number at a run's latest look, queries among them; NaN if there is none.

    Examples:
        >>> latest({"curve": [{"values": 8, "gradients": 4}]}, "queries")
        12.0
    """
    return _number(record["curve"][-1], key) if record["curve"] else math.nan


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the sample deviation of the finite values; NaN where there is none.

    Examples:
        >>> mean_and_deviation([1.0, 3.0, math.nan])
        (2.0, 1.4142135623730951)
        >>> mean_and_deviation([1.0])
        (1.0, nan)
    """
    finite = [value for value in values if math.isfinite(value)]
    mean = float(np.mean(finite)) if finite else math.nan
    return mean, float(np.std(finite, ddof=1)) if len(finite) > 1 else math.nan


def mean_curve(records: Sequence[Record], x: str, y: str) -> MeanCurve:
    """The mean of ``y`` where all runs have been, with each run interpolated linearly.

    The grid is that of the runs' own looks, thinned if there are many, so that nothing is smoothed
    where the runs looked at the same points. A look without a finite value is passed over.
    """
    curves = []
    for record in records:
        points = [(_number(point, x), _number(point, y)) for point in record["curve"]]
        finite = [pair for pair in points if all(map(math.isfinite, pair))]
        if finite:
            curves.append(np.asarray(finite, dtype=np.float64).T)
    if not curves:
        return MeanCurve([], [], [])
    start, end = max(xs[0] for xs, _ in curves), min(xs[-1] for xs, _ in curves)
    grid = np.unique(np.concatenate([xs for xs, _ in curves]))
    grid = grid[(grid >= start) & (grid <= end)]
    if len(grid) > MOST_POINTS:
        grid = grid[np.linspace(0, len(grid) - 1, MOST_POINTS).round().astype(int)]
    values = np.stack([np.interp(grid, *curve) for curve in curves])
    deviation = values.std(axis=0, ddof=1).tolist() if len(curves) > 1 else []
    return MeanCurve(grid.tolist(), values.mean(axis=0).tolist(), deviation)


def _number(point: Mapping[str, Any], key: str) -> float:
    if key == "queries":
        return float(queries(point))
    value = point.get(key)
    return math.nan if value is None else float(value)
