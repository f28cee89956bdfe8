"""Official files of data sets: where their archives unpack to, and how each is read.

A reader returns the arrays that an npz file of the set would hold: ``x_train y_train x_test
y_test``, images uint8 as (N, H, W) or (N, H, W, 3), classes from 0.
"""

import gzip
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcco_lab.datasets.arrays import Arrays, reading

__all__ = ["LAYOUTS", "Layout"]


@dataclass(frozen=True)
class Layout:
    """The official files of a data set.

    Args:
        folders: the possible folders, best first; "." is the data directory itself.
        files: the names of the files, all in the same folder.
        read: a function of the paths of the files, in this order.
        suffix: the suffix of a compressed file, which is read as well.
    """

    folders: tuple[str, ...]
    files: tuple[str, ...]
    read: Callable[[Sequence[Path]], Arrays]
    suffix: str = ""

    def find(self, directory: Path) -> list[Path] | None:
        """The files, if all exist in one of the folders."""
        for folder in self.folders:
            plain = [directory / folder / file for file in self.files]
            packed = [path.with_name(path.name + self.suffix) for path in plain]
            found = [a if a.is_file() else b for a, b in zip(plain, packed, strict=True)]
            if all(path.is_file() for path in found):
                return found
        return None

    def __str__(self) -> str:
        names = ", ".join(f"{file}[{self.suffix}]" if self.suffix else file for file in self.files)
        return f"{names} (in {' or '.join(self.folders)})"


def read_idx(paths: Sequence[Path]) -> Arrays:
    """MNIST and data sets of the same format: four idx files, plain or .gz."""
    arrays: Arrays = {}
    for name, path in zip(("x_train", "y_train", "x_test", "y_test"), paths, strict=True):
        with reading(path):
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            # Type (8: bytes) and number of dimensions, the shape, the bytes.
            if data[:3] != b"\x00\x00\x08":
                raise ValueError("it is not an idx file of bytes")
            shape = np.frombuffer(data, ">u4", count=data[3], offset=4)
            content = np.frombuffer(data, np.uint8, offset=4 + 4 * data[3])
            arrays[name] = content.reshape(shape.tolist())
    return arrays


class _ArraysOnly(pickle.Unpickler):
    """Unpickles dicts, lists, bytes and arrays of numbers; refuses every other name.

    A pickle may call any function that it names. CIFAR's files name three, and they are replaced:
    by an empty array of bytes, which the pickle then fills, with a numeric type.
    """

    def find_class(self, module: str, name: str) -> Any:
        # The module moved between versions of numpy: the names are compared, never imported.
        match module, name:
            case "numpy", "ndarray":
                return "ndarray"
            case "numpy", "dtype":
                return self._numeric
            case "numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct":
                return lambda *_: np.empty(0, np.uint8)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not allowed")

    @staticmethod
    def _numeric(code: Any, *_: Any) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(code, copy=True)  # the pickle sets its byte order
        if dtype.kind not in "biuf":
            raise pickle.UnpicklingError(f"arrays of {dtype} are not allowed")
        return dtype


def read_cifar(paths: Sequence[Path], *, labels: str) -> Arrays:
    """CIFAR's Python batches, the last of them for the test; ``labels``: key of the classes."""
    images: list[NDArray[Any]] = []
    classes: list[NDArray[Any]] = []
    for path in paths:
        with reading(path), path.open("rb") as file:
            # Written by Python 2, whose strings are bytes.
            batch = _ArraysOnly(file, encoding="bytes").load()
            x = np.asarray(batch[b"data"], dtype=np.uint8).reshape(-1, 3, 32, 32)
            images.append(x.transpose(0, 2, 3, 1))
            classes.append(np.asarray(batch[labels.encode()], dtype=np.int64))
    return {
        "x_train": np.concatenate(images[:-1]),
        "y_train": np.concatenate(classes[:-1]),
        "x_test": images[-1],
        "y_test": classes[-1],
    }


def read_svhn(paths: Sequence[Path]) -> Arrays:
    """SVHN's cropped digits: (32, 32, 3, N) in a .mat file; the digit 0 has the label 10."""
    from scipy import io  # type: ignore[import-untyped, unused-ignore]

    arrays: Arrays = {}
    for part, path in zip(("train", "test"), paths, strict=True):
        with reading(path):
            content = io.loadmat(path, variable_names=["X", "y"])
            arrays[f"x_{part}"] = content["X"].transpose(3, 0, 1, 2)
            arrays[f"y_{part}"] = content["y"].ravel() % 10
    return arrays


def read_stl10(paths: Sequence[Path]) -> Arrays:
    """STL10's labelled images: 3 channels of 96 x 96 in column-major order, labels from 1."""
    x_train, y_train, x_test, y_test = paths
    arrays: Arrays = {}
    for part, x, y in (("train", x_train, y_train), ("test", x_test, y_test)):
        with reading(x):
            images = np.fromfile(x, np.uint8).reshape(-1, 3, 96, 96)
            arrays[f"x_{part}"] = images.transpose(0, 3, 2, 1)
        arrays[f"y_{part}"] = np.fromfile(y, np.uint8).astype(np.int64) - 1
    return arrays


def read_libsvm(paths: Sequence[Path], *, features: int) -> Arrays:
    """LIBSVM's text: lines ``label index:value ...``."""
    from sklearn import datasets

    arrays: Arrays = {}
    for part, path in zip(("train", "test"), paths, strict=True):
        with reading(path):
            # The number of features is given, because the last may be 0 in a whole file (a9a.t).
            x, y = datasets.load_svmlight_file(str(path), n_features=features, zero_based=False)
        arrays[f"x_{part}"] = x.toarray().astype(np.float32)
        arrays[f"y_{part}"] = y.astype(np.int64)
    return arrays


def read_usps(paths: Sequence[Path]) -> Arrays:
    """USPS: 16 x 16 pixels in [-1, 1], the digit d with the label d + 1."""
    arrays = read_libsvm(paths, features=256)
    for part in ("train", "test"):
        arrays[f"x_{part}"] = ((arrays[f"x_{part}"] + 1) / 2).reshape(-1, 16, 16)
        arrays[f"y_{part}"] = arrays[f"y_{part}"] - 1
    return arrays


def read_a9a(paths: Sequence[Path]) -> Arrays:
    """a9a: 123 binary features, labels -1 and +1, here 0 and 1."""
    arrays = read_libsvm(paths, features=123)
    for key in ("y_train", "y_test"):
        arrays[key] = (arrays[key] > 0).astype(np.int64)
    return arrays


def _idx(*names: str) -> Layout:
    parts = [("train", "images-idx3"), ("train", "labels-idx1")]
    parts += [("t10k", "images-idx3"), ("t10k", "labels-idx1")]
    files = tuple(f"{part}-{content}-ubyte" for part, content in parts)
    folders = tuple(folder for name in names for folder in (name, f"{name}/raw"))
    return Layout(folders, files, read_idx, ".gz")


def _cifar(name: str, folder: str, labels: str, *files: str) -> Layout:
    folders = (folder, f"{name}/{folder}", name)
    return Layout(folders, files, partial(read_cifar, labels=labels))


# torchvision's names of the folders are accepted too.
LAYOUTS: dict[str, Layout] = {
    "mnist": _idx("mnist", "MNIST"),
    "kmnist": _idx("kmnist", "KMNIST"),
    "fashion_mnist": _idx("fashion_mnist", "FashionMNIST"),
    "cifar10": _cifar(
        "cifar10",
        "cifar-10-batches-py",
        "labels",
        *(f"data_batch_{k}" for k in range(1, 6)),
        "test_batch",
    ),
    "cifar100": _cifar("cifar100", "cifar-100-python", "fine_labels", "train", "test"),
    "svhn": Layout((".", "svhn"), ("train_32x32.mat", "test_32x32.mat"), read_svhn),
    "stl10": Layout(
        ("stl10_binary", "stl10/stl10_binary", "stl10"),
        ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin"),
        read_stl10,
    ),
    "usps": Layout((".", "usps"), ("usps", "usps.t"), read_usps, ".bz2"),
    "a9a": Layout((".", "a9a"), ("a9a", "a9a.t"), read_a9a, ".bz2"),
}
