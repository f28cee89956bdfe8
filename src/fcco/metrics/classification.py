"""Areas under curves of binary and multi-task scores, computed by scikit-learn.

scikit-learn integrates in float64 and does not change the scores; torchmetrics applies a sigmoid to
some of them, and large scores then tie.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fcco.metrics.arguments import check_booleans, check_numbers, check_shape

__all__ = ["macro_auroc", "macro_average_precision", "partial_auroc"]


def macro_auroc(scores: Tensor, labels: Tensor, known: Tensor | None = None) -> float:
    """Area under the ROC curve, the mean over tasks; ties count one half.

    Args:
        scores: (N, m), or (N,) for a single task; only their order within a task matters.
        labels: booleans, as ``scores``.
        known: booleans, as ``scores``: which labels are known; by default all of them.

    Examples:
        >>> scores = torch.tensor([[0.9, 3.0], [0.2, 1.0], [0.4, 2.0]])
        >>> labels = torch.tensor([[True, False], [False, True], [False, True]])
        >>> macro_auroc(scores, labels)
        0.5
        >>> macro_auroc(scores[:, 0], labels[:, 0])
        1.0
    """
    from sklearn.metrics import roc_auc_score

    return _mean_over_tasks(roc_auc_score, scores, labels, known)


def macro_average_precision(scores: Tensor, labels: Tensor, known: Tensor | None = None) -> float:
    """Average precision, sum_n (R_n - R_{n-1}) P_n over thresholds n, the mean over tasks.

    Args:
        scores: (N, m), or (N,) for a single task; only their order within a task matters.
        labels: booleans, as ``scores``.
        known: booleans, as ``scores``: which labels are known; by default all of them.

    Examples:
        >>> scores = torch.tensor([0.9, 0.7, 0.4])
        >>> labels = torch.tensor([False, True, False])
        >>> macro_average_precision(scores, labels)
        0.5
        >>> macro_average_precision(scores, labels, known=torch.tensor([False, True, True]))
        1.0
    """
    from sklearn.metrics import average_precision_score

    return _mean_over_tasks(average_precision_score, scores, labels, known)


def partial_auroc(
    scores: Tensor,
    labels: Tensor,
    *,
    max_fpr: float,
    min_tpr: float = 0.0,
    standardized: bool = False,
) -> float:
    """Partial area under the ROC curve, one-way or two-way, divided by the largest such area.

    With TPR(x) the ROC polyline (so ties are its slanted pieces), A = ``max_fpr`` and
    B = ``min_tpr``,

        int_0^A max(TPR(x) - B, 0) dx / (A (1 - B)),

    the area under the curve with FPR at most A and TPR at least B, divided by the area of a perfect
    score. A random score gets A / 2 at B = 0; McClish's standardization would give 1/2.

    Args:
        scores: (N,); only their order matters.
        labels: (N,) booleans.
        max_fpr: the largest false positive rate that counts, in (0, 1].
        min_tpr: the smallest true positive rate that counts, in [0, 1); 0 is one-way.
        standardized: use McClish's standardization, as ``roc_auc_score(max_fpr=...)`` of
            scikit-learn does; only for one-way areas.

    Examples:
        >>> scores = torch.tensor([0.9, 0.8, 0.7, 0.6])
        >>> labels = torch.tensor([True, False, True, False])
        >>> partial_auroc(scores, labels, max_fpr=0.5)
        0.5
        >>> partial_auroc(scores, labels, max_fpr=1.0, min_tpr=0.5)
        0.5
    """
    from sklearn.metrics import roc_auc_score, roc_curve

    check_shape("scores", scores, "N")
    _check_tasks(scores, labels, None)
    if not 0 < max_fpr <= 1:
        raise ValueError(f"max_fpr must lie in (0, 1], got {max_fpr}")
    if not 0 <= min_tpr < 1:
        raise ValueError(f"min_tpr must lie in [0, 1), got {min_tpr}")
    if standardized:
        if min_tpr > 0:
            raise ValueError(f"standardized is defined only for min_tpr=0, got {min_tpr}")
        return float(roc_auc_score(_array(labels), _array(_ranks(scores)), max_fpr=max_fpr))
    curve = roc_curve(_array(labels), _array(_ranks(scores)), drop_intermediate=False)
    x, y = torch.from_numpy(curve[0]), torch.from_numpy(curve[1])
    run, rise = x.diff(), y.diff()
    # a piece that crosses max_fpr is cut there; pieces beyond it have length 0
    left = ((max_fpr - x[:-1]) / run).clamp(0, 1).where(run > 0, 0)
    run, rise = run * left, rise * left
    low, high = (y[:-1] - min_tpr).clamp(min=0), (y[:-1] + rise - min_tpr).clamp(min=0)
    # the part of the run above min_tpr: all of it, unless the piece crosses that height
    above = ((high - low) / rise).clamp(max=1).where(rise > 0, 1)
    area = (run * above * (low + high) / 2).sum()
    return min(float(area) / (max_fpr * (1 - min_tpr)), 1.0)


def _mean_over_tasks(
    score: Callable[[Any, Any], Any], scores: Tensor, labels: Tensor, known: Tensor | None
) -> float:
    known = _check_tasks(scores, labels, known)
    if scores.ndim == 1:
        scores, labels, known = scores[:, None], labels[:, None], known[:, None]
    values = [
        float(score(_array(label[keep]), _array(_ranks(column[keep]))))
        for column, label, keep in zip(scores.T, labels.T, known.T, strict=True)
    ]
    return sum(values) / len(values)


def _check_tasks(scores: Tensor, labels: Tensor, known: Tensor | None) -> Tensor:
    """Check shapes, types and that every task has both classes; return which labels are known."""
    check_shape("scores", scores, *("N", "m")[: 1 if scores.ndim == 1 else 2])
    known = torch.ones_like(labels, dtype=torch.bool) if known is None else known
    for name, flags in (("labels", labels), ("known", known)):
        check_shape(name, flags, *scores.shape)
        check_booleans(name, flags)
    check_numbers("scores", scores)
    for name, wanted in (("positive", labels), ("negative", ~labels)):
        empty = (~(wanted & known).any(0)).reshape(-1).nonzero().flatten().tolist()
        if empty:
            raise ValueError(f"labels: tasks {empty} have no {name} sample among the known")
    return known


def _ranks(scores: Tensor) -> Tensor:
    """Integers with the order and the ties of the scores, which may be infinite or in bfloat16."""
    ranks: Tensor = torch.unique(scores.detach(), return_inverse=True)[1]
    return ranks


def _array(tensor: Tensor) -> Any:
    return tensor.cpu().numpy()
