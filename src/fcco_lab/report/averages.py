"""Numbers at the end of runs, and their means over seeds."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fcco_lab.runs import Record, queries

__all__ = ["last", "latest", "mean_and_deviation"]


def last(record: Record, key: str) -> float:
    """A number at the end of a run or, if it has no end yet, at its latest evaluation; else NaN.

    Examples:
        >>> last({"auc": None, "curve": [{"auc": 0.5}, {"auc": 0.75}]}, "auc")
        0.75
    """
    if record.get(key) is not None:
        return float(record[key])
    return latest(record, key)


def latest(record: Record, key: str) -> float:
    """A number at the latest evaluation of a run, also its queries; NaN if there is none.

    Examples:
        >>> latest({"curve": [{"values": 8, "gradients": 4}]}, "queries")
        12.0
    """
    return _number(record["curve"][-1], key) if record["curve"] else math.nan


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the sample deviation of the finite values; NaN if there is none.

    Examples:
        >>> mean_and_deviation([1.0, 3.0, math.nan])
        (2.0, 1.4142135623730951)
        >>> mean_and_deviation([1.0])
        (1.0, nan)
    """
    finite = [value for value in values if math.isfinite(value)]
    mean = float(np.mean(finite)) if finite else math.nan
    return mean, float(np.std(finite, ddof=1)) if len(finite) > 1 else math.nan


def _number(point: Mapping[str, Any], key: str) -> float:
    if key == "queries":
        return float(queries(point))
    value = point.get(key)
    return math.nan if value is None else float(value)
