"""Survival curves of a Cox model: Breslow's baseline hazard, and step functions of time."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["StepFunction", "baseline_hazard"]


@dataclass(frozen=True, eq=False)
class StepFunction:
    """A function of time that is constant from one time to the next, as in scikit-survival.

    Args:
        x: times, rising.
        y: the values from each time on.
        before: the value before the first time.

    Examples:
        >>> curve = StepFunction(np.array([1.0, 2.0]), np.array([0.9, 0.5]), before=1.0)
        >>> curve([0.0, 1.5, 7.0])
        array([1. , 0.9, 0.5])
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    before: float

    def __call__(self, times: ArrayLike) -> NDArray[np.float64]:
        """The values at some times; beyond the last time the last value."""
        place = np.searchsorted(self.x, times, side="right")
        return np.concatenate([[self.before], self.y])[place]


def baseline_hazard(
    scores: NDArray[np.float64],
    times: NDArray[Any],
    events: NDArray[np.bool_],
    weight: NDArray[np.float64] | None = None,
) -> StepFunction:
    """Breslow's cumulative hazard at score 0: at each time, events over sum exp(h) at risk.

    Args:
        scores: (n,), the log risks of the subjects.
        times: (n,), of the event or of the censoring.
        events: (n,), whether the event was seen.
        weight: (n,), how much each subject counts in both sums; None: all count alike.

    Examples:
        >>> hazard = baseline_hazard(np.zeros(3), np.array([1.0, 2.0, 2.0]), np.array([1, 0, 1]))
        >>> hazard.y  # 1/3, then 1/3 + 1/2
        array([0.33333333, 0.83333333])
    """
    distinct, place, counts = np.unique(times, return_inverse=True, return_counts=True)
    weight = np.ones(len(times)) if weight is None else weight
    deaths = np.bincount(place, weights=weight * events)
    falling = np.argsort(-place, kind="stable")
    log_sums = np.logaddexp.accumulate((scores + np.log(weight))[falling])
    at_risk = log_sums[counts[::-1].cumsum() - 1][::-1]
    rises, some = np.zeros(len(distinct)), deaths > 0
    rises[some] = np.exp(np.log(deaths[some]) - at_risk[some])
    return StepFunction(distinct.astype(np.float64), rises.cumsum(), before=0.0)
