"""Imbalanced and binary variants of a data set."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from fcco_lab.datasets.records import Classified

__all__ = ["binary", "imbalanced"]


def _positive_classes(data: Classified, positive: int | Sequence[int]) -> Tensor:
    wanted = sorted(set(positive) if isinstance(positive, Iterable) else {positive})
    if not wanted:
        raise ValueError("positive must name at least one class")
    absent = sorted(set(wanted) - set(data.classes.unique().tolist()))
    if absent:
        raise ValueError(f"positive names classes without a sample: {absent}")
    return torch.tensor(wanted, device=data.classes.device)


def imbalanced(
    data: Classified, positive: int | Sequence[int], keep: float, *, seed: int = 0
) -> Classified:
    """Keep a part of some classes; the other classes and the order do not change.

    For the same seed, a smaller ``keep`` keeps a subset of the samples of a larger one.

    Args:
        data: the samples.
        positive: the class or classes to reduce.
        keep: the fraction of each that is kept, in (0, 1]; at least one sample is kept.
        seed: the seed of the draw.

    Examples:
        >>> data = Classified(torch.zeros(20, 2), torch.arange(20) % 2)
        >>> imbalanced(data, positive=1, keep=0.2).classes.bincount().tolist()
        [10, 2]
    """
    if not 0 < keep <= 1:
        raise ValueError(f"keep must lie in (0, 1], got {keep}")
    generator = torch.Generator().manual_seed(seed)
    stays = torch.ones_like(data.classes, dtype=torch.bool)
    for chosen in _positive_classes(data, positive):
        rows = (data.classes == chosen).nonzero().flatten()
        # The whole permutation is drawn for every keep, which makes the choices nested.
        order = torch.randperm(len(rows), generator=generator).to(rows.device)
        stays[rows[order[max(1, round(keep * len(rows))) :]]] = False
    return Classified(data.inputs[stays], data.classes[stays])


def binary(data: Classified, positive: int | Sequence[int]) -> Classified:
    """The classes in ``positive`` become 1, the others 0.

    Args:
        data: the samples.
        positive: the class or classes that count as positive; not all classes.

    Examples:
        >>> data = Classified(torch.zeros(4, 2), torch.tensor([0, 1, 2, 3]))
        >>> binary(data, positive=[1, 3]).classes.tolist()
        [0, 1, 0, 1]
    """
    classes = torch.isin(data.classes, _positive_classes(data, positive))
    if classes.all():
        raise ValueError("positive names every class: no sample would be negative")
    return Classified(data.inputs, classes.long())
