"""Mean curves over seeds, and their values at the end or at equal cost."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fcco_lab.runs import AXES, Record, queries

__all__ = ["Final", "check_seeds", "final", "mean_curve", "shared_end", "trace"]

Array = NDArray[np.float64]

MOST_POINTS = 120
"""The largest number of points of a mean curve; more cannot be distinguished."""


class Final(NamedTuple):
    """Mean and standard deviation over the runs that count, how many these are, and how many
    diverged and are left out. Without any, the mean is NaN; the deviation of one run is 0."""

    mean: float
    sd: float
    seeds: int
    diverged: int


def trace(record: Record, x: str, y: str) -> tuple[Array, Array]:
    """The evaluations of one run with a finite ``y``, against "samples", "queries" or "seconds".

    Examples:
        >>> point = {"values": 4, "gradients": 2, "objective": 0.5}
        >>> run = {"name": "a", "curve": [point, point | {"objective": None}]}
        >>> trace(run, "queries", "objective")
        (array([6.]), array([0.5]))
    """
    if x not in AXES:
        raise ValueError(f"x must be one of {', '.join(AXES)}, got {x!r}")
    points = [p for p in record["curve"] if p.get(y) is not None and math.isfinite(p[y])]
    across = np.array([queries(p) if x == "queries" else p[x] for p in points], float)
    if (np.diff(across) < 0).any():
        raise ValueError(f"{x} must not go down along the curve of {record['name']!r}")
    return across, np.array([p[y] for p in points], float)


def mean_curve(records: Sequence[Record], x: str, y: str) -> tuple[Array, Array, Array]:
    """A grid of ``x``, the mean of ``y`` there over the seeds, and its standard deviation.

    The grid consists of the evaluations of the runs, thinned if there are many, so nothing is
    smoothed if all runs have the same evaluations. Each run is interpolated linearly over the range
    of x that all runs cover. The mean is arithmetic also on a log scale, where the worst seed has
    the most weight. Diverged runs are left out, and running ones too as soon as one is finished;
    without any run the arrays are empty. The deviation of a single seed is 0.

    Examples:
        >>> def run(seed, end):
        ...     curve = [{"samples": 0, "auc": 0.5}, {"samples": 10, "auc": end}]
        ...     config = {"seed": seed}
        ...     return {"name": f"{seed}", "status": "finished", "config": config, "curve": curve}
        >>> mean_curve([run(0, 0.7), run(1, 0.9)], "samples", "auc")[1]
        array([0.5, 0.8])
    """
    traces = [t for t in (trace(r, x, y) for r in _measured(records)) if len(t[0])]
    if not traces:
        return np.empty(0), np.empty(0), np.empty(0)
    start, end = max(t[0][0] for t in traces), min(t[0][-1] for t in traces)
    grid = np.unique(np.concatenate([across for across, _ in traces]))
    grid = grid[(grid >= start) & (grid <= end)]
    if len(grid) > MOST_POINTS:
        grid = grid[np.linspace(0, len(grid) - 1, MOST_POINTS).round().astype(int)]
    values = np.stack([np.interp(grid, *t) for t in traces])
    return grid, values.mean(0), values.std(0, ddof=1) if len(values) > 1 else 0 * grid


def final(records: Sequence[Record], key: str, *, at: tuple[str, float] | None = None) -> Final:
    """``key`` at the end of the finished runs or, if there are none, where the running ones are.

    A run that finished without a finite value counts as diverged; one without the key is ignored.

    Args:
        records: runs that differ in the seed alone.
        key: of a quantity or a cost.
        at: an axis and a place on it, for the value there instead of at the end. Curves are
            interpolated linearly, so evaluations should be frequent.

    Examples:
        >>> runs = [{"name": "a", "status": "finished", "config": {"seed": 0}, "auc": 0.75}]
        >>> final(runs + [{"name": "b", "status": "diverged", "config": {"seed": 1}}], "auc")
        Final(mean=0.75, sd=0.0, seeds=1, diverged=1)
    """
    check_seeds(records)
    if at is None:
        found = [_last(record, key) for record in _measured(records)]
    else:
        traces = [trace(record, at[0], key) for record in _measured(records)]
        found = [np.interp(at[1], *points) for points in traces if len(points[0])]
    present = np.array([value for value in found if value is not None], float)
    values = present[np.isfinite(present)]
    diverged = sum(r["status"] == "diverged" for r in records) + len(present) - len(values)
    if not len(values):
        return Final(float("nan"), 0.0, 0, diverged)
    sd = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return Final(float(values.mean()), sd, len(values), diverged)


def shared_end(records: Sequence[Record], x: str, y: str) -> float:
    """The largest ``x`` that every finished run reached: the end of the run that stopped first."""
    traces = [trace(record, x, y) for record in records if record["status"] == "finished"]
    return float(min((across[-1] for across, _ in traces if len(across)), default=0.0))


def _measured(records: Sequence[Record]) -> list[Record]:
    """The runs of a mean: the finished ones or, if there are none yet, the running ones."""
    finished = [r for r in records if r["status"] == "finished"]
    return finished or [r for r in records if r["status"] == "running"]


def _last(record: Record, key: str) -> Any:
    """A number at the end of a run or, if it has no end yet, at its latest evaluation."""
    if record.get(key) is not None or not record.get("curve"):
        return record.get(key)
    point = record["curve"][-1]
    return queries(point) if key == "queries" else point.get(key)


def check_seeds(records: Sequence[Record]) -> None:
    """Two runs with one seed differ in something else, and a mean over both would hide it."""
    seen: dict[Any, str] = {}
    for record in records:
        other = seen.setdefault(record["config"].get("seed"), record["name"])
        if other != record["name"]:
            raise ValueError(f"{other!r} and {record['name']!r} have the same seed")
