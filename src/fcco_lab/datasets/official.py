"""Official files of data sets: where their archives unpack to, and how each is read.

A reader returns the arrays that an npz file of the set would hold: ``x_train y_train x_test
y_test``, images uint8 as (N, H, W) or (N, H, W, 3), classes from 0.
"""

import gzip
import pickle
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fcco_lab.datasets.arrays import Arrays, reading

__all__ = ["LAYOUTS", "Layout"]


class Layout(NamedTuple):
    """The official files of a data set.

    Args:
        folders: the possible folders, best first; "." is the data directory itself.
        files: the names of the files, all in the same folder, plain or packed.
        read: a function of the paths of the files, in this order.
        suffix: the suffix of a packed file.
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
    """Unpickles dicts, lists, bytes and arrays; refuses every name but the three of an array.

    A pickle may call any function that it names. The module of the first of them moved between
    versions of numpy, so that names are compared and never imported.
    """

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not allowed")


def read_cifar(paths: Sequence[Path], *, labels: bytes) -> Arrays:
    """CIFAR's Python batches, the last of them for the test; ``labels``: key of the classes."""
    x, y = [], []
    for path in paths:
        with reading(path), path.open("rb") as file:
            # Written by Python 2, whose strings are bytes.
            batch = _ArraysOnly(file, encoding="bytes").load()
            images = np.asarray(batch[b"data"], dtype=np.uint8).reshape(-1, 3, 32, 32)
            x.append(images.transpose(0, 2, 3, 1))
            y.append(np.asarray(batch[labels], dtype=np.int64))
    arrays: Arrays = {"x_train": np.concatenate(x[:-1]), "y_train": np.concatenate(y[:-1])}
    return arrays | {"x_test": x[-1], "y_test": y[-1]}


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
    arrays: Arrays = {}
    for name, path in zip(("x_train", "y_train", "x_test", "y_test"), paths, strict=True):
        with reading(path):
            content = np.fromfile(path, np.uint8)
            if name.startswith("x"):
                arrays[name] = content.reshape(-1, 3, 96, 96).transpose(0, 3, 2, 1)
            else:
                arrays[name] = content.astype(np.int64) - 1
    return arrays


def read_libsvm(paths: Sequence[Path], *, features: int) -> Arrays:
    """LIBSVM's text, with lines ``label index:value ...``, of USPS (256 features) or a9a."""
    from sklearn import datasets

    arrays: Arrays = {}
    for part, path in zip(("train", "test"), paths, strict=True):
        with reading(path):
            # The number of features is given, because the last may be 0 in a whole file (a9a.t).
            x, y = datasets.load_svmlight_file(str(path), n_features=features, zero_based=False)
        x = x.toarray().astype(np.float32)
        if features == 256:  # pixels in [-1, 1], and the digit d has the label d + 1
            x, y = ((x + 1) / 2).reshape(-1, 16, 16), y - 1
        else:  # labels -1 and +1
            y = y > 0
        arrays[f"x_{part}"], arrays[f"y_{part}"] = x, y.astype(np.int64)
    return arrays


def _idx(*names: str) -> Layout:
    folders = tuple(folder for name in names for folder in (name, f"{name}/raw"))
    parts = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return Layout(folders, tuple(f"{part}-ubyte" for part in parts), read_idx, ".gz")


def _cifar(name: str, folder: str, labels: bytes, *files: str) -> Layout:
    folders = (folder, f"{name}/{folder}", name)
    return Layout(folders, files, partial(read_cifar, labels=labels))


def _libsvm(name: str, features: int) -> Layout:
    read = partial(read_libsvm, features=features)
    return Layout((".", name), (name, f"{name}.t"), read, ".bz2")


_BATCHES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")

# torchvision's names of the folders are accepted too.
LAYOUTS: dict[str, Layout] = {
    "mnist": _idx("mnist", "MNIST"),
    "kmnist": _idx("kmnist", "KMNIST"),
    "fashion_mnist": _idx("fashion_mnist", "FashionMNIST"),
    "cifar10": _cifar("cifar10", "cifar-10-batches-py", b"labels", *_BATCHES),
    "cifar100": _cifar("cifar100", "cifar-100-python", b"fine_labels", "train", "test"),
    "svhn": Layout((".", "svhn"), ("train_32x32.mat", "test_32x32.mat"), read_svhn),
    "stl10": Layout(
        ("stl10_binary", "stl10/stl10_binary", "stl10"),
        ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin"),
        read_stl10,
    ),
    "usps": _libsvm("usps", 256),
    "a9a": _libsvm("a9a", 123),
}
