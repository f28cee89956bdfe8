"""Labels of one task or of several tasks, some of which may be missing."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fcco.problem.given import hint, structure, tensor

__all__ = ["Labels", "read_labels", "read_tasks"]


class Labels(NamedTuple):
    """Positive and negative samples, both as (N, T); a sample with a missing label is neither."""

    positive: Tensor
    negative: Tensor

    @property
    def valid(self) -> Tensor:
        """(T,), whether a task has both a positive and a negative."""
        return self.positive.any(0) & self.negative.any(0)

    @property
    def order(self) -> Tensor:
        """(T, N), the positives of each task, then its negatives, then the unlabelled samples."""
        kind = torch.where(self.positive, 0, torch.where(self.negative, 1, 2)).to(torch.int8)
        return kind.T.sort(dim=1, stable=True).indices


def read_labels(given: Any) -> Labels:
    """Read the labels of one task, (N,), or of several tasks, (N, T).

    Args:
        given: 1 for positives, 0 for negatives, and -1 or NaN where the label is missing.

    Examples:
        >>> labels = read_labels(torch.tensor([1, 0, -1]))
        >>> labels.positive.T, labels.negative.T
        (tensor([[ True, False, False]]), tensor([[False,  True, False]]))
    """
    values = tensor("labels", given).cpu().contiguous()
    if not (values.is_floating_point() or values.is_complex() or values.dtype == torch.bool):
        # An unsigned tensor would compare 255 == -1 as true, and the largest uint64 becomes -1.
        wrapped = (values.long() < 0) & (values.dtype == torch.uint64)
        values = values.long().masked_fill(wrapped, torch.iinfo(torch.int64).max)
    if values.ndim not in (1, 2) or not values.numel():
        raise ValueError(
            f"labels must have shape (N,) or (N, T), got {tuple(values.shape)}{hint(values)}"
        )
    values = values if values.ndim == 2 else values.unsqueeze(1)
    labels = Labels(values == 1, values == 0)
    # Any other number, such as 2 or 0.5, is an error and not silently a missing label.
    strange = ~(labels.positive | labels.negative | (values == -1) | values.isnan())
    if strange.any():
        sample, task = strange.nonzero()[0].tolist()
        raise ValueError(
            f"labels must be 0 or 1, or -1 or NaN where missing; sample {sample}, task {task} has "
            f"{values[sample, task].item()}"
        )
    return _compared(labels)


def read_tasks(given: Any, num_tasks: int = 0) -> Labels:
    """Read tasks from integer classes (N,), from booleans (N,) of one task, or from labels (N, T).

    Every class is a task against the rest. There are at least ``num_tasks`` of them, because a
    validation set may lack the last classes.

    Examples:
        >>> read_tasks(torch.tensor([0, 2, 1])).positive.shape
        torch.Size([3, 3])
        >>> read_tasks(torch.tensor([True, False])).positive.shape
        torch.Size([2, 1])
    """
    values = tensor("labels", given)
    if values.ndim != 1 or values.dtype == torch.bool:
        return read_labels(values)
    if values.is_floating_point():
        raise ValueError(
            "labels of shape (N,) must be integers (the class of each sample, one task for each "
            f"class) or booleans (one task), got {values.dtype}"
        )
    classes = structure("labels", values, None, kind="whole")
    count = max(int(classes.max()) + 1 if len(classes) else 0, num_tasks)
    if count * len(classes) > 2**33:
        raise ValueError(f"labels: {count} classes of {len(classes)} samples are too many tasks")
    # Every class is a task: its own samples are positive and all others negative.
    positive = classes.unsqueeze(1) == torch.arange(count)
    return _compared(Labels(positive, ~positive))


def _compared(labels: Labels) -> Labels:
    if not labels.valid.any():
        hint = "" if labels.negative.any() else ": negatives are 0, and -1 is a missing label"
        raise ValueError(f"labels: no task has both a positive and a negative sample{hint}")
    return labels
