"""Arrays ``x_train y_train x_test y_test`` of a file as checked records of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from torch import Tensor

from fcco_lab.datasets.official import reading
from fcco_lab.datasets.records import Classified, Ranked, Survival

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fcco_lab.datasets.official import Arrays

__all__ = ["PARTS", "by_query", "classified", "ranked", "survival"]

PARTS = ("_train", "_test")

R = TypeVar("R", Classified, Survival, Ranked)

LARGEST = 2**31
"""Labels are smaller; larger numbers mark missing labels, such as 2**64 - 1."""


def classified(
    arrays: Arrays,
    path: Path,
    kind: Literal["images", "features", "either"] = "either",
    parts: Sequence[str] = PARTS,
) -> list[Classified]:
    """Each part from its ``x`` and ``y``; inputs of two dimensions are features.

    Args:
        arrays: as read from the file.
        path: of the file, for errors.
        kind: what the inputs must be.
        parts: the endings of the keys.
    """
    classes = [_integers(arrays, f"y{part}", path) for part in parts]
    if path.suffix == ".npz":
        # A subset may lack classes, a user's file count from 1 or use -1 and +1: number what is
        # there. The official readers know their labels; a wrong one is an error, not a class.
        places = torch.cat(classes).unique(return_inverse=True)[1]
        classes = list(places.split([len(y) for y in classes]))

    def make(part: str, y: Tensor) -> Classified:
        key = f"x{part}"
        flat = kind == "features" or (kind == "either" and arrays[key].ndim == 2)
        inputs = (_features if flat else _images)(arrays, key, path)
        with reading(f"{path}, {key} and y{part}"):
            return Classified(inputs, y)

    return _alike([make(part, y) for part, y in zip(parts, classes, strict=True)], path)


def survival(arrays: Arrays, path: Path, parts: Sequence[str] = PARTS) -> list[Survival]:
    """Each part from its ``x``, ``t`` and ``e``; arguments as of ``classified``."""

    def make(part: str) -> Survival:
        inputs = _features(arrays, f"x{part}", path)
        events = _integers(arrays, f"e{part}", path)
        with reading(f"{path}, t{part} and e{part}"):
            if ((events != 0) & (events != 1)).any():
                raise ValueError(f"e{part} must hold only 0 and 1")
            return Survival(inputs, _floats(arrays[f"t{part}"]), events.bool())

    return _alike([make(part) for part in parts], path)


def ranked(arrays: Arrays, path: Path, parts: Sequence[str] = PARTS) -> list[Ranked]:
    """Each part from its ``x``, ``y`` and ``q``; arguments as of ``classified``.

    ``q`` has the lengths of the queries, or the query of each document.
    """

    def make(part: str) -> Ranked:
        inputs = _features(arrays, f"x{part}", path)
        grades = _integers(arrays, f"y{part}", path)
        queries = _integers(arrays, f"q{part}", path)
        with reading(f"{path}, y{part} and q{part}"):
            if len(queries) == len(inputs):
                return by_query(inputs, grades, queries)
            return Ranked(inputs, grades, queries)

    return _alike([make(part) for part in parts], path)


def by_query(inputs: Tensor, grades: Tensor, queries: Tensor) -> Ranked:
    """Documents put together by their query, which keeps their order within it.

    Examples:
        >>> data = by_query(torch.zeros(3, 1), torch.tensor([0, 1, 2]), torch.tensor([7, 3, 7]))
        >>> data.grades, data.lengths
        (tensor([1, 0, 2]), tensor([1, 2]))
    """
    order = queries.sort(stable=True).indices
    return Ranked(inputs[order], grades[order], queries.unique(return_counts=True)[1])


def _alike(parts: list[R], path: Path) -> list[R]:
    """The parts, if their samples have the same shape."""
    shapes = [tuple(part.inputs.shape[1:]) for part in parts]
    if len(set(shapes)) > 1:
        raise ValueError(f"{path}: x_train has samples of shape {shapes[0]}, x_test of {shapes[1]}")
    return parts


def _check_numbers(array: NDArray[Any]) -> None:
    """Complex numbers and dates are refused instead of being cast."""
    if array.dtype.kind not in "biuf":
        raise ValueError(f"it must hold real numbers, got {array.dtype}")


def _floats(array: NDArray[Any]) -> Tensor:
    import numpy as np

    _check_numbers(array)
    with np.errstate(over="ignore"):  # what becomes infinite is then refused by its place
        # A copy: torch wants memory of its own that it may write to, in native byte order.
        return torch.from_numpy(np.array(array, dtype=np.float32, order="C"))


def _features(arrays: Arrays, key: str, path: Path) -> Tensor:
    with reading(f"{path}, key {key!r}"):
        if arrays[key].ndim != 2:
            raise ValueError(f"features must have shape (N, d), got {arrays[key].shape}")
        return _floats(arrays[key])


def _images(arrays: Arrays, key: str, path: Path) -> Tensor:
    with reading(f"{path}, key {key!r}"):
        x = arrays[key]
        if x.ndim == 3:
            x = x[..., None]
        if x.ndim != 4 or x.shape[-1] not in (1, 3):
            raise ValueError(
                f"images must have shape (N, H, W), (N, H, W, 1) or (N, H, W, 3), got {x.shape}"
            )
        images = _floats(x.transpose(0, 3, 1, 2))
        if x.dtype == "uint8":
            return images.div_(255)
        if not ((images >= 0) & (images <= 1)).all():
            raise ValueError(f"images of {x.dtype} must lie in [0, 1]")
        return images


def _integers(arrays: Arrays, key: str, path: Path) -> Tensor:
    import numpy as np

    with reading(f"{path}, key {key!r}"):
        values = arrays[key]
        _check_numbers(values)
        if values.ndim != 1:
            raise ValueError(f"it must hold whole numbers in one dimension, got {values.shape}")
        # Grades and classes are sometimes stored as floats; a fraction would be lost silently.
        # "not <", so that a nan is found too.
        wrong = (values != np.round(values)) | ~(np.abs(values.astype(float)) < LARGEST)
        if wrong.any():
            raise ValueError(
                f"it must hold whole numbers below {LARGEST} in size, got "
                f"{values[wrong][0]} in row {wrong.argmax()}"
            )
        return torch.from_numpy(np.array(values, dtype=np.int64))
