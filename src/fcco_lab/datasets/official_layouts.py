"""The places of official files in a data directory, as their archives unpack."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fcco_lab.datasets import official, official_text

if TYPE_CHECKING:
    from fcco_lab.datasets.official import Arrays

__all__ = ["LAYOUTS", "Layout"]


@dataclass(frozen=True)
class Layout:
    """One form of distribution of a data set.

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
        """The files, if all exist."""
        for folder in self._places(directory):
            choices = [(folder / file, folder / f"{file}{self.suffix}") for file in self.files]
            found = [first if first.is_file() else second for first, second in choices]
            if all(path.is_file() for path in found):
                return found
        return None

    def _places(self, directory: Path) -> Iterator[Path]:
        whole = directory.absolute().parts
        for folder in self.folders:
            yield directory / folder
            # The directory may be one of the folders itself. Its name then identifies the set; the
            # names of idx files do not.
            parts = Path(folder).parts
            if parts and whole[-len(parts) :] == parts:
                yield directory

    def __str__(self) -> str:
        names = ", ".join(f"{file}[{self.suffix}]" if self.suffix else file for file in self.files)
        return f"{names} (in {' or '.join(self.folders)})"


def _idx(*names: str) -> tuple[Layout, ...]:
    files = (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    )
    folders = tuple(folder for name in names for folder in (name, f"{name}/raw"))
    return (Layout(folders, files, official.idx, ".gz"),)


def _cifar(name: str, folder: str, archive: str, labels: str, *files: str) -> tuple[Layout, ...]:
    members = tuple(f"{folder}/{file}" for file in files)
    unpacked = partial(official.cifar_folder, labels=labels)
    packed = partial(official.cifar_archive, labels=labels, members=members)
    return (
        Layout((folder, f"{name}/{folder}", name), files, unpacked),
        Layout((".", name), (archive,), packed),
    )


# torchvision's names of the folders are accepted too.
LAYOUTS: dict[str, tuple[Layout, ...]] = {
    "mnist": _idx("mnist", "MNIST"),
    "kmnist": _idx("kmnist", "KMNIST"),
    "fashion_mnist": _idx("fashion_mnist", "FashionMNIST"),
    "cifar10": _cifar(
        "cifar10",
        "cifar-10-batches-py",
        "cifar-10-python.tar.gz",
        "labels",
        *(f"data_batch_{k}" for k in range(1, 6)),
        "test_batch",
    ),
    "cifar100": _cifar(
        "cifar100", "cifar-100-python", "cifar-100-python.tar.gz", "fine_labels", "train", "test"
    ),
    "svhn": (Layout((".", "svhn"), ("train_32x32.mat", "test_32x32.mat"), official.svhn),),
    "stl10": (
        Layout(
            ("stl10_binary", "stl10/stl10_binary", "stl10"),
            ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin"),
            official.stl10,
        ),
    ),
    "usps": (Layout((".", "usps"), ("usps", "usps.t"), official_text.usps, ".bz2"),),
    "a9a": (Layout((".", "a9a"), ("a9a", "a9a.t"), official_text.a9a, ".bz2"),),
}
