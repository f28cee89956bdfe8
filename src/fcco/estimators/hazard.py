"""Step functions of time, for the survival curves and hazards of a Cox model."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["StepFunction"]


@dataclass(frozen=True, eq=False)
class StepFunction:
    """A function of time that is constant from one time to the next, as in scikit-survival.

    Args:
        x: (k,), the times in rising order.
        y: (k,), the value from each time on.
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
        """Return the values at some times; after the last time it is the last value."""
        place = np.searchsorted(self.x, times, side="right")
        return np.concatenate([[self.before], self.y])[place]
