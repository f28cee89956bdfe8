"""Readers for the official files of image data sets.

Each returns the arrays that an npz file of the set would hold: ``x_train y_train x_test y_test``,
images uint8 as (N, H, W) or (N, H, W, 3), classes from 0.
"""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]

__all__ = ["cifar_archive", "cifar_folder", "idx", "reading", "stl10", "svhn"]


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
    # Decoders of broken files raise almost anything: zlib.error, KeyError, BadZipFile, OSError, ...
    except Exception as error:
        raise ValueError(f"cannot read {what}: {error or type(error).__name__}") from error


def _idx_file(path: Path) -> NDArray[Any]:
    """One array in the idx format: type and number of dimensions, the shape, the bytes."""
    import numpy as np

    with reading(path):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        if data[:3] != b"\x00\x00\x08":
            raise ValueError("it is not an idx file of bytes")
        shape = np.frombuffer(data, ">u4", count=data[3], offset=4)
        return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape.tolist())


def idx(paths: Sequence[Path]) -> Arrays:
    """MNIST and data sets of the same format: four idx files, plain or .gz."""
    names = ("x_train", "y_train", "x_test", "y_test")
    return dict(zip(names, map(_idx_file, paths), strict=True))


class _ArraysOnly(pickle.Unpickler):
    """Unpickles dicts, lists, bytes and arrays of numbers; refuses every other name.

    A pickle may call any function that it names. CIFAR's files name three, and they are replaced:
    by an empty array of bytes, which the pickle then fills, with a numeric type.
    """

    def find_class(self, module: str, name: str) -> Any:
        import numpy as np

        def numeric(code: Any, *_: Any) -> np.dtype[Any]:
            dtype: np.dtype[Any] = np.dtype(code, copy=True)  # the pickle sets its byte order
            if dtype.kind not in "biuf":
                raise pickle.UnpicklingError(f"arrays of {dtype} are not allowed")
            return dtype

        # The module moved between versions of numpy: the names are compared, never imported.
        match module, name:
            case "numpy", "ndarray":
                return "ndarray"
            case "numpy", "dtype":
                return numeric
            case "numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct":
                return lambda *_: np.empty(0, np.uint8)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not allowed")


def _cifar_batch(raw: bytes, labels: str, path: str) -> tuple[NDArray[Any], NDArray[Any]]:
    import numpy as np

    with reading(path):
        # Written by Python 2, whose strings are bytes.
        batch = _ArraysOnly(io.BytesIO(raw), encoding="bytes").load()
        x = np.asarray(batch[b"data"], dtype=np.uint8).reshape(-1, 3, 32, 32)
        return x.transpose(0, 2, 3, 1), np.asarray(batch[labels.encode()], dtype=np.int64)


def _cifar(raws: Sequence[bytes], labels: str, paths: Sequence[str]) -> Arrays:
    """Training batches; the last batch is the test part."""
    import numpy as np

    batches = [_cifar_batch(raw, labels, path) for raw, path in zip(raws, paths, strict=True)]
    x, y = zip(*batches, strict=True)
    train = {"x_train": np.concatenate(x[:-1]), "y_train": np.concatenate(y[:-1])}
    return train | {"x_test": x[-1], "y_test": y[-1]}


def cifar_folder(paths: Sequence[Path], *, labels: str) -> Arrays:
    """CIFAR's unpacked Python batches; ``labels`` is the key of the classes."""
    return _cifar([path.read_bytes() for path in paths], labels, [str(path) for path in paths])


def cifar_archive(paths: Sequence[Path], *, labels: str, members: Sequence[str]) -> Arrays:
    """The same from the .tar.gz, read in place: nothing is unpacked to disk."""
    (path,) = paths
    with reading(path), tarfile.open(path) as archive:
        raws = []
        for member in members:
            file = archive.extractfile(member)
            if file is None:
                raise ValueError(f"{member} is not a file")
            raws.append(file.read())
    return _cifar(raws, labels, [f"{path}, {member}" for member in members])


def svhn(paths: Sequence[Path]) -> Arrays:
    """SVHN's cropped digits: (32, 32, 3, N) in a .mat file; the digit 0 has the label 10."""
    from scipy import io as scipy_io  # type: ignore[import-untyped, unused-ignore]

    arrays: Arrays = {}
    for part, path in zip(("train", "test"), paths, strict=True):
        with reading(path):
            content = scipy_io.loadmat(path, variable_names=["X", "y"])
            arrays[f"x_{part}"] = content["X"].transpose(3, 0, 1, 2)
            arrays[f"y_{part}"] = content["y"].ravel() % 10
    return arrays


def stl10(paths: Sequence[Path]) -> Arrays:
    """STL10's labelled images: 3 channels of 96 x 96 in column-major order, labels from 1."""
    import numpy as np

    x_train, y_train, x_test, y_test = paths
    arrays: Arrays = {}
    for part, x, y in (("train", x_train, y_train), ("test", x_test, y_test)):
        with reading(x):
            images = np.fromfile(x, np.uint8).reshape(-1, 3, 96, 96)
            arrays[f"x_{part}"] = images.transpose(0, 3, 2, 1)
        arrays[f"y_{part}"] = np.fromfile(y, np.uint8).astype(np.int64) - 1
    return arrays
