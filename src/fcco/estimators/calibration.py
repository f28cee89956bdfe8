"""Platt scaling, which maps a score to log-odds by an increasing line."""

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

__all__ = ["platt"]

_LEAST = 1e-6
"""Smallest slope for standardized scores, which keeps the line increasing."""


def platt(
    scores: NDArray[np.float64],
    positive: NDArray[np.bool_],
    weight: NDArray[np.float64] | None = None,
) -> tuple[float, float]:
    """Return the slope and the offset of the log-odds of a score, by logistic regression.

    A ridge keeps them finite if the scores separate the classes.

    Args:
        scores: (n,), the scores.
        positive: (n,), whether each sample is positive. Both kinds must occur.
        weight: (n,), how much each sample counts, or None if all count alike.

    Examples:
        >>> scores = np.array([0.0, 1.0, 2.0, 3.0])
        >>> slope, offset = platt(scores, scores > 1.5)
        >>> slope > 0, round(slope * 1.5 + offset, 6)
        (True, 0.0)
    """
    centre = float(np.average(scores, weights=weight))
    scale = float(np.average((scores - centre) ** 2, weights=weight)) ** 0.5 or 1.0
    # On standardized scores, the default ridge means the same for scores of any scale.
    fitted = LogisticRegression().fit(((scores - centre) / scale)[:, None], positive, weight)
    slope = max(float(fitted.coef_[0, 0]), _LEAST) / scale
    return slope, float(fitted.intercept_[0]) - slope * centre
