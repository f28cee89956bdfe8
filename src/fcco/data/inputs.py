"""Inputs of the model: tensors, or data sets from which samples are read one by one."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from fcco.problem.given import as_inputs
from fcco.problem.sampled import SampledObjective

__all__ = ["Inputs", "read_inputs", "take"]

Part = int | str | Callable[[Any], Any]


class Inputs(Dataset[Any]):
    """A data set that yields the part of each sample that the model takes.

    Pass it as the inputs of ``block_loader`` and ``exact_value``. The model is called with the
    result of ``collate_fn`` for a list of these parts: a tensor, or a tuple or dict of tensors.

    Args:
        dataset: any object with ``len`` and ``[int]``.
        input: the position (in a tuple) or key (in a dict) of the model's input, a list of them for
            several inputs, or a function of the sample. By default the whole sample is the input.
        collate_fn: a function that makes a batch of a list of inputs, as in ``DataLoader``, for
            example for sequences of different lengths.

    Examples:
        >>> import torch
        >>> pairs = [(torch.rand(2), label) for label in (0, 1, 1, 0)]  # a Dataset of (x, y)
        >>> Inputs(pairs, input=0)[3].shape
        torch.Size([2])
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
        """Return several inputs at once, in the way that is fastest for ``dataset``."""
        # Data sets with ``__getitems__`` (as those of Hugging Face) read a batch at once.
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


def take(source: Any, positions: Tensor) -> Any:
    """Return the samples of ``source`` at ``positions``; for a pair of views, those of both.

    Examples:
        >>> take(torch.tensor([5, 6, 7]), torch.tensor([2, 0]))
        tensor([7, 5])
    """
    if isinstance(source, tuple):
        return tuple(take(part, positions) for part in source)
    if isinstance(source, Tensor):
        return source[positions.to(source.device)]
    if isinstance(source, Inputs):
        return source.collate_fn(source.__getitems__(positions.tolist()))
    samples = [source[i] for i in positions.tolist()]
    try:
        return torch.stack([torch.as_tensor(sample) for sample in samples])
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"samples must be tensors of one shape: {error} (fcco.data.Inputs takes the input "
            "out of a tuple or a dict, and has a collate_fn)"
        ) from error


def read_inputs(given: Any, objective: SampledObjective) -> Any:
    """Check the inputs of the samples of an objective; arrays become tensors.

    Examples:
        >>> from fcco.objectives import NCA
        >>> read_inputs(torch.zeros(2, 3), NCA([0, 1, 0]))
        Traceback (most recent call last):
        ValueError: the objective was built from 3 samples, inputs hold 2
    """
    if not isinstance(objective, SampledObjective):
        raise TypeError(
            f"{type(objective).__name__} does not know its samples: use an objective of "
            "fcco.objectives, or form batches yourself"
        )
    if objective.num_views == 2:
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise ValueError("inputs must be a pair, of all first and of all second views")
        inputs: Any = tuple(as_inputs(view) for view in given)
        sizes = [len(view) for view in inputs]
    else:
        inputs = as_inputs(given)
        sizes = [len(inputs)]
    for size in sizes:
        if size != objective.num_samples:
            raise ValueError(
                f"the objective was built from {objective.num_samples} samples, inputs hold {size}"
            )
    return inputs
