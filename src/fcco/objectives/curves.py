"""Areas under curves of scores, task by task; scores are compared, never changed."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fcco.objectives.labels import Labels
from fcco.objectives.score import read_scores, read_weight

__all__ = ["area", "average_precision", "mean_over_tasks", "partial_area"]

Curve = Callable[[Tensor, Tensor], float]
"""From the weight of the positives and of the negatives at or above each threshold, which fall,
to an area."""


def mean_over_tasks(scores: Any, labels: Labels, weight: Any, curve: Curve) -> float:
    """The mean of an area over the tasks that have a positive and a negative.

    Args:
        scores: (N,) or (N, T).
        labels: of N samples.
        weight: (N,), how much each sample counts, or None.
        curve: the area.

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
    """Weights at or above each distinct score, the highest first, after a leading 0."""
    kept = (positive > 0) | (negative > 0)
    _, place = h[kept].unique(return_inverse=True)
    totals = [
        torch.zeros(int(place.max()) + 1, dtype=torch.float64).index_add(0, place, side[kept])
        for side in (positive, negative)
    ]
    above, below = (torch.cat([t.new_zeros(1), t.flip(0).cumsum(0)]) for t in totals)
    return above, below


def area(positives: Tensor, negatives: Tensor) -> float:
    """The area under the ROC curve; ties count one half.

    Examples:
        >>> area(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0]))
        0.5
    """
    total = torch.trapezoid(positives / positives[-1], negatives / negatives[-1])
    return float(total)


def partial_area(max_fpr: float, min_tpr: float) -> Curve:
    """The area with a low false positive and a high true positive rate, over the largest such one.

    With TPR(x) the ROC polyline (ties are its slanted pieces), A = ``max_fpr`` and B = ``min_tpr``,

        int_0^A max(TPR(x) - B, 0) dx / (A (1 - B)).

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
        # A piece that crosses max_fpr is cut there; pieces beyond it have length 0.
        left = ((max_fpr - x[:-1]) / run).clamp(0, 1).where(run > 0, 0)
        run, rise = run * left, rise * left
        low, high = (y[:-1] - min_tpr).clamp(min=0), (y[:-1] + rise - min_tpr).clamp(min=0)
        # The part of the run above min_tpr: all of it, unless the piece crosses that height.
        above = ((high - low) / rise).clamp(max=1).where(rise > 0, 1)
        total = float((run * above * (low + high) / 2).sum())
        return min(total / (max_fpr * (1 - min_tpr)), 1.0)

    return curve


def average_precision(positives: Tensor, negatives: Tensor) -> float:
    """sum_n (R_n - R_{n-1}) P_n over thresholds n, with recall R and precision P.

    Examples:
        >>> average_precision(torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.0, 1.0, 1.0]))
        0.5
    """
    precision = positives[1:] / (positives[1:] + negatives[1:])
    return float((positives.diff() / positives[-1] * precision).sum())
