"""Arrays ``x_train y_train x_test y_test`` of an npz file as checked records of tensors."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fcco_lab.datasets.records import Classified, Ranked, Survival

__all__ = ["PARTS", "READERS", "Arrays", "by_query", "read_npz", "reading"]

Arrays = dict[str, NDArray[Any]]

R = TypeVar("R", Classified, Survival, Ranked)

PARTS = ("_train", "_test")

LARGEST = 2**31
"""Labels are smaller; larger numbers mark missing labels, such as 2**64 - 1."""


@contextmanager
def reading(what: Path | str) -> Iterator[None]:
    """Add the name of the file to any error while it is decoded.

    Examples:
        >>> with reading("train.bin"):
        ...     raise EOFError("ends early")
        Traceback (most recent call last):
        ValueError: cannot read train.bin: ends early
    """
    try:
        yield
    except (PermissionError, MemoryError):
        raise
    except KeyError as error:
        raise ValueError(f"cannot read {what}: there is no {error}") from error
    # Decoders of broken files raise almost anything: zlib.error, BadZipFile, OSError, ...
    except Exception as error:
        words = " ".join(str(error).split())
        raise ValueError(f"cannot read {what}: {words or type(error).__name__}") from error


def read_npz(path: Path) -> Arrays:
    """All arrays of an npz file.

    A file with only some of the classes may renumber them as ``task_*``, used instead of ``y_*``.
    """
    with path.open("rb") as handle:  # np.load would leave a broken file open
        with reading(path):
            # allow_pickle=False: an array of objects could run code when it is read.
            file = np.load(handle, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError("it is not an npz file")
        arrays: Arrays = {}
        for key in file.files:
            with reading(f"{path}, key {key!r}"):
                arrays[key] = file[key]
    tasks = {key.replace("task_", "y_"): arrays[key] for key in arrays if key.startswith("task_")}
    return arrays | tasks


def classified(arrays: Arrays, path: Path, parts: Sequence[str] = PARTS) -> list[Classified]:
    """Each part from its ``x`` and ``y``; inputs of two dimensions are features.

    Args:
        arrays: as read from the file.
        path: of the file, for errors.
        parts: the endings of the keys.
    """
    classes = [_take(arrays, f"y{part}", path, _integers) for part in parts]
    if path.suffix == ".npz":
        # A subset may lack classes, a user's file count from 1 or use -1 and +1: number what is
        # there. The official readers know their labels; a wrong one is an error, not a class.
        places = torch.cat(classes).unique(return_inverse=True)[1]
        classes = list(places.split([len(y) for y in classes]))
    found = []
    for part, y in zip(parts, classes, strict=True):
        x = _take(arrays, f"x{part}", path, _inputs)
        with reading(f"{path}, x{part} and y{part}"):
            found.append(Classified(x, y))
    return _alike(found, path)


def survival(arrays: Arrays, path: Path, parts: Sequence[str] = PARTS) -> list[Survival]:
    """Each part from its ``x``, ``t`` and ``e``; arguments as of ``classified``."""
    found = []
    for part in parts:
        inputs = _take(arrays, f"x{part}", path, _features)
        times = _take(arrays, f"t{part}", path, _times)
        events = _take(arrays, f"e{part}", path, _integers)
        with reading(f"{path}, t{part} and e{part}"):
            if ((events != 0) & (events != 1)).any():
                raise ValueError(f"e{part} must hold only 0 and 1")
            found.append(Survival(inputs, times, events.bool()))
    return _alike(found, path)


def ranked(arrays: Arrays, path: Path, parts: Sequence[str] = PARTS) -> list[Ranked]:
    """Each part from its ``x``, ``y`` and ``q``; arguments as of ``classified``.

    ``q`` has the lengths of the queries, or the query of each document: a whole number or a text.
    """
    found = []
    for part in parts:
        inputs = _take(arrays, f"x{part}", path, _features)
        grades = _take(arrays, f"y{part}", path, _integers)
        if np.shape(arrays.get(f"q{part}", ())) == (len(inputs),):
            queries = _take(arrays, f"q{part}", path, _places)
            with reading(f"{path}, x{part} and y{part}"):
                found.append(by_query(inputs, grades, queries))
            continue
        lengths = _take(arrays, f"q{part}", path, _integers)
        with reading(f"{path}, y{part} and q{part}"):
            found.append(Ranked(inputs, grades, lengths))
    return _alike(found, path)


READERS: dict[str, Callable[..., list[Any]]] = {
    "classes": classified,
    "survival": survival,
    "ranking": ranked,
}
"""The reader of each kind of data."""


def by_query(inputs: Tensor, grades: Tensor, queries: Tensor) -> Ranked:
    """Documents put together by their query, which keeps their order within it.

    Examples:
        >>> data = by_query(torch.zeros(3, 1), torch.tensor([0, 1, 2]), torch.tensor([7, 3, 7]))
        >>> data.grades, data.lengths
        (tensor([1, 0, 2]), tensor([1, 2]))
    """
    if len(grades) != len(inputs):
        raise ValueError(f"grades has {len(grades)} entries, inputs {len(inputs)} rows")
    order = queries.sort(stable=True).indices
    return Ranked(inputs[order], grades[order], queries.unique(return_counts=True)[1])


def _alike(parts: list[R], path: Path) -> list[R]:
    """The parts, if their samples have the same shape."""
    shapes = [tuple(part.inputs.shape[1:]) for part in parts]
    if len(set(shapes)) > 1:
        raise ValueError(f"{path}: x_train has samples of shape {shapes[0]}, x_test of {shapes[1]}")
    return parts


def _take(
    arrays: Arrays, key: str, path: Path, convert: Callable[[NDArray[Any]], Tensor]
) -> Tensor:
    """An array as a tensor; errors name the file and the key."""
    if key not in arrays:
        raise ValueError(f"{path} has no key {key!r}, only {sorted(arrays)}")
    with reading(f"{path}, key {key!r}"):
        return convert(arrays[key])


def _floats(array: NDArray[Any], precision: type[np.floating[Any]] = np.float32) -> Tensor:
    if array.dtype.kind not in "biuf":  # complex numbers and dates are refused, not cast
        raise ValueError(f"it must hold real numbers, got {array.dtype}")
    with np.errstate(over="ignore"):  # what becomes infinite is then refused by its place
        # A copy: torch wants memory of its own that it may write to, in native byte order.
        return torch.from_numpy(np.array(array, dtype=precision, order="C"))


def _times(array: NDArray[Any]) -> Tensor:
    """In float64, or what else holds all digits: rounded times would become ties."""
    if array.dtype.kind in "iu" and array.max(initial=0) > 2**53:
        if array.max() >= 2**63:
            raise ValueError(f"times must be below 2^63, got {array.max()} in row {array.argmax()}")
        return torch.from_numpy(array.astype(np.int64))
    return _floats(array, np.float32 if array.dtype == np.float32 else np.float64)


def _features(x: NDArray[Any]) -> Tensor:
    if x.ndim != 2:
        raise ValueError(f"features must have shape (N, d), got {x.shape}")
    return _floats(x)


def _inputs(x: NDArray[Any]) -> Tensor:
    """Features (N, d), or images as (N, C, H, W) in [0, 1]."""
    if x.ndim == 2:
        return _floats(x)
    if x.ndim == 3:
        x = x[..., None]
    if x.ndim != 4 or x.shape[-1] not in (1, 3):
        raise ValueError(
            "inputs must be features (N, d), or images (N, H, W), (N, H, W, 1) or (N, H, W, 3), "
            f"got {x.shape}"
        )
    images = _floats(x.transpose(0, 3, 1, 2))
    if x.dtype == "uint8":
        return images.div_(255)
    if not ((images >= 0) & (images <= 1)).all():
        raise ValueError(f"images of {x.dtype} must lie in [0, 1]")
    return images


def _integers(values: NDArray[Any]) -> Tensor:
    if values.ndim != 1:
        raise ValueError(f"it must hold whole numbers in one dimension, got {values.shape}")
    exact = _floats(values, np.float64)
    # Grades and classes are sometimes stored as floats; a fraction would be lost silently.
    # "not <", so that a NaN is found too.
    wrong = (exact != exact.round()) | ~(exact.abs() < LARGEST)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise ValueError(
            f"it must hold whole numbers below {LARGEST} in size, got {values[row]} in row {row}"
        )
    return exact.long()


def _places(queries: NDArray[Any]) -> Tensor:
    """The queries numbered; nineteen digits and texts stay apart, floats must be whole."""
    if queries.dtype.kind == "f":
        queries = _integers(queries).numpy()
    return torch.from_numpy(np.unique(queries, return_inverse=True)[1])
