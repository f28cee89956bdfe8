"""Test metrics, through torchmetrics."""

import torch
from torch import Tensor

from fcco.data import TaskData

__all__ = ["auc_and_ap"]


def auc_and_ap(scores: Tensor, data: TaskData) -> tuple[float, float]:
    """Area under the ROC curve and average precision of (N, m) scores, each the mean over tasks.

    Examples:
        >>> perfect = TaskData.from_classes(torch.eye(3), torch.arange(3))
        >>> auc_and_ap(torch.eye(3), perfect)
        (1.0, 1.0)
    """
    from torchmetrics.functional.classification import (
        multilabel_auroc,
        multilabel_average_precision,
    )

    # sigmoid is monotone: torchmetrics would apply it to some score tensors and not to others
    scores = torch.sigmoid(scores.double())
    labels, count = data.labels.long(), data.num_blocks
    return (
        float(multilabel_auroc(scores, labels, num_labels=count)),
        float(multilabel_average_precision(scores, labels, num_labels=count)),
    )
