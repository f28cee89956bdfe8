"""Readers for data sets in LIBSVM's text format: lines ``label index:value ...``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcco_lab.datasets.official import reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fcco_lab.datasets.official import Arrays

__all__ = ["a9a", "usps"]


def _libsvm_file(path: Path, features: int) -> tuple[NDArray[Any], NDArray[Any]]:
    import numpy as np
    from sklearn import datasets

    with reading(path):
        # The number of features is given, because the last ones may be 0 in a whole file (a9a.t).
        x, y = datasets.load_svmlight_file(str(path), n_features=features, zero_based=False)
        return x.toarray().astype(np.float32), y.astype(np.int64)


def usps(paths: Sequence[Path]) -> Arrays:
    """USPS: 16 x 16 pixels in [-1, 1], the digit d with the label d + 1."""
    arrays: Arrays = {}
    for part, path in zip(("train", "test"), paths, strict=True):
        x, y = _libsvm_file(path, 256)
        arrays[f"x_{part}"] = ((x + 1) / 2).reshape(-1, 16, 16)
        arrays[f"y_{part}"] = y - 1
    return arrays


def a9a(paths: Sequence[Path]) -> Arrays:
    """a9a: 123 binary features, labels -1 and +1, here 0 and 1."""
    arrays: Arrays = {}
    for part, path in zip(("train", "test"), paths, strict=True):
        x, y = _libsvm_file(path, 123)
        arrays[f"x_{part}"], arrays[f"y_{part}"] = x, (y > 0).astype(y.dtype)
    return arrays
