"""Areas under the curves that ranking metrics are defined by, computed task by task."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fcco.objectives.labels import Labels
from fcco.objectives.score import read_scores, read_weight

__all__ = ["area", "average_precision", "mean_over_tasks", "partial_area"]

Curve = Callable[[Tensor, Tensor], float]
"""A function that returns an area. Its two arguments are the weights of the positives and of the
negatives that score at or above each threshold, for falling thresholds."""


def mean_over_tasks(scores: Any, labels: Labels, weight: Any, curve: Curve) -> float:
    """Return the mean of an area over the tasks that have a positive and a negative.

    Args:
        scores: (N,) or (N, T), the scores of all samples.
        labels: the labels of these samples.
        weight: (N,), how much each sample counts, or None if all count alike.
        curve: the function that computes the area of one task.

    Examples:
        >>> from fcco.objectives.labels import read_labels
        >>> mean_over_tasks(torch.tensor([2.0, 1.0]), read_labels([1, 0]), None, area)
        1.0
    """
    count, tasks = labels.positive.shape
    h = read_scores(scores, count, tasks).detach().cpu()
    w = torch.ones(count, dtype=torch.float64)
    if weight is not None:
        w = read_weight(weight, count).cpu()
    found = []
    for task in range(tasks):
        sides = [members[:, task] * w for members in labels]
        if all(side.sum() > 0 for side in sides):
            found.append(curve(*_cumulated(h[:, task], *sides)))
    if not found:
        raise ValueError("labels: no task has both a positive and a negative sample")
    return sum(found) / len(found)


def _cumulated(h: Tensor, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights at or above each distinct score, highest first, after a leading 0."""
    kept = (positive > 0) | (negative > 0)
    # Equal scores share one threshold, so ties become one slanted piece of the curve.
    _, place = h[kept].unique(return_inverse=True)
    totals = [
        torch.zeros(int(place.max()) + 1, dtype=torch.float64).index_add(0, place, side[kept])
        for side in (positive, negative)
    ]
    above, below = (torch.cat([t.new_zeros(1), t.flip(0).cumsum(0)]) for t in totals)
    return above, below


def area(positives: Tensor, negatives: Tensor) -> float:
    """Return the area under the ROC curve; ties count one half.

    Examples:
        >>> area(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0]))
        0.5
    """
    total = torch.trapezoid(positives / positives[-1], negatives / negatives[-1])
    return float(total)


def partial_area(max_fpr: float, min_tpr: float) -> Curve:
    """Return the function that computes a partial area under the ROC curve, between 0 and 1.

    Only the part of the area with a false positive rate up to A = ``max_fpr`` and a true positive
    rate above B = ``min_tpr`` counts. It is divided by the largest value that it can have:

        int_0^A max(TPR(x) - B, 0) dx / (A (1 - B)).

    TPR(x) is the ROC curve as a polyline, in which ties are slanted pieces.

    Examples:
        >>> partial_area(0.5, 0.0)(torch.tensor([0.0, 1.0, 1.0]), torch.tensor([0.0, 0.0, 1.0]))
        1.0
    """
    if not 0 < max_fpr <= 1:
        raise ValueError(f"max_fpr must lie in (0, 1], got {max_fpr}")
    if not 0 <= min_tpr < 1:
        raise ValueError(f"min_tpr must lie in [0, 1), got {min_tpr}")

    def curve(positives: Tensor, negatives: Tensor) -> float:
        x, y = negatives / negatives[-1], positives / positives[-1]
        run, rise = x.diff(), y.diff()
        # Cut the piece that crosses max_fpr there; the pieces beyond it get the length 0.
        left = ((max_fpr - x[:-1]) / run).clamp(0, 1).where(run > 0, 0)
        run, rise = run * left, rise * left
        low, high = (y[:-1] - min_tpr).clamp(min=0), (y[:-1] + rise - min_tpr).clamp(min=0)
        # The fraction of a piece that lies above min_tpr; it is 1 unless the piece crosses it.
        above = ((high - low) / rise).clamp(max=1).where(rise > 0, 1)
        total = float((run * above * (low + high) / 2).sum())
        return min(total / (max_fpr * (1 - min_tpr)), 1.0)

    return curve


def average_precision(positives: Tensor, negatives: Tensor) -> float:
    """Return sum_n (R_n - R_{n-1}) P_n over thresholds n, with recall R and precision P.

    Examples:
        >>> average_precision(torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.0, 1.0, 1.0]))
        0.5
    """
    precision = positives[1:] / (positives[1:] + negatives[1:])
    return float((positives.diff() / positives[-1] * precision).sum())
