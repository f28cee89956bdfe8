"""The inputs of a data set whose samples are tuples or dicts."""

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import Dataset, default_collate

__all__ = ["Inputs"]

Part = int | str | Callable[[Any], Any]


class Inputs(Dataset[Any]):
    """The part of each sample that the model takes, for the ``inputs`` of any data set with blocks.

    The model is called with what ``collate_fn`` makes of a list of these parts: a tensor, or a
    tuple or dict of tensors.

    Args:
        dataset: anything with ``len`` and ``[int]``.
        input: the position (of a tuple) or key (of a dict) of the model's input, a list of them for
            several inputs, or a function of the sample; None: the whole sample.
        collate_fn: makes a batch of a list of inputs, as in ``DataLoader``, for sequences of
            several lengths, say.

    Examples:
        >>> import torch
        >>> from fcco.data import TaskData
        >>> pairs = [(torch.rand(2), label) for label in (0, 1, 1, 0)]  # a Dataset of (x, y)
        >>> data = TaskData.binary(Inputs(pairs, input=0), [label for _, label in pairs])
        >>> data.batch([0, 1, 3]).inputs.shape
        torch.Size([3, 2])
        >>> rows = [{"image": torch.rand(2), "age": 1.0, "label": 1}]
        >>> Inputs(rows, input=["image", "age"])[0].keys()
        dict_keys(['image', 'age'])
    """

    def __init__(
        self,
        dataset: Any,
        *,
        input: Part | list[int] | list[str] | None = None,
        collate_fn: Callable[[list[Any]], Any] = default_collate,
    ) -> None:
        self.dataset = dataset
        self.input = input
        self.collate_fn = collate_fn

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self._select(self.dataset[index])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Several at once, as fast as ``dataset`` can."""
        fetch = getattr(self.dataset, "__getitems__", None)
        samples = fetch(indices) if callable(fetch) else [self.dataset[i] for i in indices]
        return [self._select(sample) for sample in samples]

    def _select(self, sample: Any) -> Any:
        part = self.input
        if part is None or callable(part):
            return sample if part is None else part(sample)
        try:
            if not isinstance(part, list):
                return sample[part]
            if isinstance(part[0], str):
                return {key: sample[key] for key in part}
            return tuple(sample[position] for position in part)
        except (KeyError, IndexError, TypeError):
            has = list(sample) if isinstance(sample, dict) else type(sample).__name__
            raise ValueError(f"input={part!r} does not fit the samples: {has}") from None
