"""Data sets by name, read from a directory that the user names, as tensors."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from fcco.data.digits import load_digits
from fcco.data.records import Classified, Ranked, Survival
from fcco_lab.datasets.catalogue import Source, resolve, source_of
from fcco_lab.datasets.official import reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fcco_lab.datasets.official import Arrays

__all__ = ["load_classes", "load_ranking", "load_survival"]

log = logging.getLogger("fcco")

R = TypeVar("R", Classified, Survival, Ranked)

LARGEST = 2**31
"""Labels are smaller; larger numbers mark missing labels, such as 2**64 - 1."""


def load_classes(name: str, data_dir: str | Path | None = None) -> tuple[Classified, Classified]:
    """A classified data set: training and test part.

    Images are float32 in [0, 1] of shape (N, C, H, W); classes are 0, 1, ... without gaps.
    The first of NAME.npz, NAME_sub.npz, another NAME_*.npz and the official files is read; the
    logger "fcco" reports it, with a warning if it is a subset.

    Args:
        name: stl10 usps cifar10 cifar100 mnist kmnist fashion_mnist svhn tinyimagenet100 a9a, or
            digits, which comes with scikit-learn and needs no directory.
        data_dir: the directory of the files; by default the environment variable FCCO_DATA.

    Examples:
        >>> train, test = load_classes("digits")
        >>> train.inputs.shape, len(test)
        (torch.Size([1437, 1, 8, 8]), 360)
    """
    name = resolve(name, "classes")
    if name == "digits":
        train, test = load_digits(seed=0)
        log.info("digits: read from scikit-learn (complete)")
        return _digit_images(train.inputs, train.labels), _digit_images(test.inputs, test.labels)
    source, arrays = _read(name, data_dir)
    classes = [_integers(arrays, f"y_{part}", source) for part in ("train", "test")]
    if source.path.suffix == ".npz":
        # A subset may lack classes, a user's file count from 1 or use -1 and +1: number what is
        # there. The official readers know their labels; a wrong one is an error, not a class.
        places = torch.cat(classes).unique(return_inverse=True)[1]
        classes = list(places.split([len(y) for y in classes]))

    def make(part: str, y: Tensor) -> Classified:
        inputs = (_features if name == "a9a" else _images)(arrays, f"x_{part}", source)
        with reading(f"{source.path}, x_{part} and y_{part}"):
            return Classified(inputs, y)

    return _alike(make("train", classes[0]), make("test", classes[1]), source)


def load_survival(name: str, data_dir: str | Path | None = None) -> tuple[Survival, Survival]:
    """A survival data set: training and test part, with the features of the file.

    Args:
        name: surv_metabric, surv_gbsg or surv_support, also without "surv_".
        data_dir: the directory of NAME.npz; by default the environment variable FCCO_DATA.
    """
    source, arrays = _read(resolve(name, "survival"), data_dir)

    def make(part: str) -> Survival:
        inputs = _features(arrays, f"x_{part}", source)
        events = _integers(arrays, f"e_{part}", source)
        with reading(f"{source.path}, t_{part} and e_{part}"):
            if ((events != 0) & (events != 1)).any():
                raise ValueError(f"e_{part} must hold only 0 and 1")
            return Survival(inputs, _floats(arrays[f"t_{part}"]), events.bool())

    return _alike(make("train"), make("test"), source)


def load_ranking(name: str, data_dir: str | Path | None = None) -> tuple[Ranked, Ranked]:
    """A ranking data set: training and test part.

    Args:
        name: lgb_lambdarank.
        data_dir: the directory of NAME.npz; by default the environment variable FCCO_DATA.
    """
    source, arrays = _read(resolve(name, "ranking"), data_dir)

    def make(part: str) -> Ranked:
        inputs = _features(arrays, f"x_{part}", source)
        grades = _integers(arrays, f"y_{part}", source)
        lengths = _integers(arrays, f"q_{part}", source)
        with reading(f"{source.path}, y_{part} and q_{part}"):
            return Ranked(inputs, grades, lengths)

    return _alike(make("train"), make("test"), source)


def _digit_images(inputs: Tensor, labels: Tensor) -> Classified:
    return Classified(inputs.view(-1, 1, 8, 8), labels.long().argmax(1))


def _read(name: str, data_dir: str | Path | None) -> tuple[Source, Arrays]:
    source = source_of(name, data_dir)
    if source.subset:
        log.warning(
            "%s: read from %s, a subset: it does not reproduce published numbers", name, source.path
        )
    else:
        log.info("%s: read from %s (%s)", name, source.path, source.note)
    return source, source.read()


def _alike(train: R, test: R, source: Source) -> tuple[R, R]:
    """Both parts, if their samples have the same shape."""
    shapes = [tuple(part.inputs.shape[1:]) for part in (train, test)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"{source.path}: x_train has samples of shape {shapes[0]}, x_test of {shapes[1]}"
        )
    return train, test


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


def _features(arrays: Arrays, key: str, source: Source) -> Tensor:
    with reading(f"{source.path}, key {key!r}"):
        if arrays[key].ndim != 2:
            raise ValueError(f"features must have shape (N, d), got {arrays[key].shape}")
        return _floats(arrays[key])


def _images(arrays: Arrays, key: str, source: Source) -> Tensor:
    with reading(f"{source.path}, key {key!r}"):
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


def _integers(arrays: Arrays, key: str, source: Source) -> Tensor:
    import numpy as np

    with reading(f"{source.path}, key {key!r}"):
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
