"""A wrapper of any data set that adds the position of every sample."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset

__all__ = ["WithIndex"]


class WithIndex(Dataset[Any]):
    """A data set whose samples come with their index, as losses that remember samples need it.

    A sample (x, y) becomes (x, y, index), x becomes (x, index), and a dict gets a key "index".

    The index is the position in ``dataset``, whatever is done to the wrapped data set later. There
    are two ways to use a subset. ``WithIndex(Subset(data, rows))`` counts within the subset, for a
    criterion built from the labels of the subset. ``Subset(WithIndex(data), rows)``, or a k-fold
    split of it, counts in ``data``, for a criterion built from all labels. F is then that of the
    samples it has seen.

    Args:
        dataset: any object with ``len`` and ``[int]``.

    Examples:
        >>> import torch
        >>> from torch.utils.data import DataLoader, Subset, TensorDataset
        >>> data = WithIndex(TensorDataset(torch.tensor([1.0, 2.0, 3.0])))
        >>> data[-1]
        (tensor(3.), 2)
        >>> next(iter(DataLoader(Subset(data, [2, 0]), batch_size=2)))
        [tensor([3., 1.]), tensor([2, 0])]
    """

    def __init__(self, dataset: Any) -> None:
        missing = [name for name in ("__len__", "__getitem__") if not hasattr(dataset, name)]
        if missing or isinstance(dataset, IterableDataset):
            raise ValueError(
                f"{type(dataset).__name__} has no positions: WithIndex needs a data set with "
                "len() and [int]; one that streams must yield an index of its own"
            )
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int | Sequence[int]) -> Any:
        return _beside(self.dataset[index], self._position(index))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return several samples at once, which torch's loaders call if it exists."""
        fetch = getattr(self.dataset, "__getitems__", None)
        samples = fetch(indices) if callable(fetch) else [self.dataset[i] for i in indices]
        return [
            _beside(sample, self._position(i)) for sample, i in zip(samples, indices, strict=True)
        ]

    def _position(self, index: Any) -> Any:
        if isinstance(index, Sequence):  # a whole batch, as loaders with batch_size=None ask for
            return torch.tensor([self._position(i) for i in index])
        # data[-1] must give the position N - 1, under which the loss knows the sample.
        return int(index) + (len(self) if index < 0 else 0)


def _beside(sample: Any, index: Any) -> Any:
    if isinstance(sample, Mapping):
        if "index" in sample:
            raise ValueError('samples have a key "index" already')
        return {**sample, "index": index}
    return (*sample, index) if isinstance(sample, tuple | list) else (sample, index)
