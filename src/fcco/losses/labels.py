"""Labels of one task or of several, some of them missing."""

from typing import Any

from torch import Tensor

from fcco.data.arguments import tensor

__all__ = ["read_labels"]


def read_labels(given: Any) -> tuple[Tensor, Tensor]:
    """Which samples are positive and which are negative, both (N, T); missing ones are neither.

    Args:
        given: (N,) or (N, T), 1 or 0, or missing: -1 or NaN.

    Examples:
        >>> import torch
        >>> positive, negative = read_labels(torch.tensor([1, 0, -1]))
        >>> positive.T, negative.T
        (tensor([[ True, False, False]]), tensor([[False,  True, False]]))
    """
    labels = tensor("labels", given).cpu().contiguous()
    if labels.ndim not in (1, 2) or not labels.numel():
        raise ValueError(f"labels must have shape (N,) or (N, T), got {tuple(labels.shape)}")
    labels = labels if labels.ndim == 2 else labels.unsqueeze(1)
    positive, negative = labels == 1, labels == 0
    strange = ~(positive | negative | (labels == -1) | labels.isnan())
    if strange.any():
        sample, task = strange.nonzero()[0].tolist()
        raise ValueError(
            f"labels must be 0 or 1, or -1 or NaN where missing; sample {sample}, task {task} has "
            f"{labels[sample, task].item()}"
        )
    if not (positive.any(0) & negative.any(0)).any():
        hint = "" if negative.any() else ": negatives are 0, and -1 is a missing label"
        raise ValueError(f"labels: no task has both a positive and a negative sample{hint}")
    return positive, negative
