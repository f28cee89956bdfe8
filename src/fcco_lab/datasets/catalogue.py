"""The data sets by name: their kinds, sources and files."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fcco_lab.choices import choose
from fcco_lab.datasets.npz import read_npz
from fcco_lab.datasets.official_layouts import LAYOUTS

if TYPE_CHECKING:
    from fcco_lab.datasets.official import Arrays

__all__ = [
    "CATALOGUE",
    "Found",
    "Kind",
    "Source",
    "available",
    "kind_of_name",
    "resolve",
    "source_of",
]

Kind = Literal["classes", "survival", "ranking"]
# The keys of an npz file of each kind, followed by _train and _test.
STEMS: dict[Kind, tuple[str, ...]] = {
    "classes": ("x", "y"),
    "survival": ("x", "t", "e"),
    "ranking": ("x", "y", "q"),
}
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
_DEEPSURV = "https://github.com/jaredleekatzman/DeepSurv"
# Name -> kind and source.
CATALOGUE: dict[str, tuple[Kind, str]] = {
    "digits": ("classes", "scikit-learn (pip install 'fcco[sklearn]')"),
    "mnist": ("classes", "https://github.com/cvdfoundation/mnist"),
    "kmnist": ("classes", "https://github.com/rois-codh/kmnist"),
    "fashion_mnist": ("classes", "https://github.com/zalandoresearch/fashion-mnist"),
    "usps": ("classes", f"{_LIBSVM}/multiclass.html#usps"),
    "svhn": ("classes", "http://ufldl.stanford.edu/housenumbers (non-commercial use only)"),
    "stl10": ("classes", "https://cs.stanford.edu/~acoates/stl10"),
    "cifar10": ("classes", "https://www.cs.toronto.edu/~kriz/cifar.html"),
    "cifar100": ("classes", "https://www.cs.toronto.edu/~kriz/cifar.html"),
    "tinyimagenet100": (
        "classes",
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip (non-commercial research only)",
    ),
    "a9a": ("classes", f"{_LIBSVM}/binary.html#a9a"),
    "surv_metabric": ("survival", _DEEPSURV),
    "surv_gbsg": ("survival", _DEEPSURV),
    "surv_support": ("survival", _DEEPSURV),
    "lgb_lambdarank": (
        "ranking",
        "https://github.com/microsoft/LightGBM/tree/master/examples/lambdarank",
    ),
}
ALIASES = {name.removeprefix("surv_"): name for name in CATALOGUE if name.startswith("surv_")}


@dataclass(frozen=True)
class Found:
    """Whether a data set was found.

    Args:
        name: the name of the data set.
        kind: "classes", "survival" or "ranking", for the loader of that name.
        path: the file to read (the first of several); None if the data set was not found.
        note: whether it is complete, or where to get it.

    Examples:
        >>> Found("kmnist", "classes", None, "get it from ...").path is None
        True
    """

    name: str
    kind: Kind
    path: Path | None
    note: str


@dataclass(frozen=True)
class Source:
    """The files of a data set: the first of them, whether they are complete, and their reader."""

    path: Path
    note: str
    subset: bool
    read: Callable[[], Arrays]


def resolve(name: str, kind: Kind) -> str:
    """The name in the catalogue; a ValueError if there is none of this kind.

    Examples:
        >>> resolve("metabric", "survival")
        'surv_metabric'
    """
    found = kind_of_name(name)
    name = ALIASES.get(name, name)
    if found != kind:
        raise ValueError(f"{name} is for load_{CATALOGUE[name][0]}, not for load_{kind}")
    return name


def kind_of_name(name: str) -> Kind:
    """The kind of a data set of the catalogue.

    Examples:
        >>> kind_of_name("metabric")
        'survival'
    """
    name = ALIASES.get(name, name)
    choose("data set", name, [*CATALOGUE, *ALIASES], otherwise="; or a file of your own")
    return CATALOGUE[name][0]


def available(data_dir: str | Path | None = None) -> list[Found]:
    """For each name in the catalogue, whether it can be loaded, and from which file.

    Without ``data_dir`` and the environment variable FCCO_DATA only digits is found.

    Examples:
        >>> [found.name for found in available() if found.kind == "ranking"]
        ['lgb_lambdarank']
    """
    directory = _directory(data_dir) if data_dir or os.environ.get("FCCO_DATA") else None
    report = []
    for name, (kind, page) in CATALOGUE.items():
        path, note = None, f"get it from {page}"
        if name == "digits":
            package = importlib.util.find_spec("sklearn")
            if package and package.origin:
                path, note = Path(package.origin).parent, "complete, comes with scikit-learn"
        elif directory and (source := _locate(name, directory)):
            path, note = source.path, source.note
        report.append(Found(name, kind, path, note))
    return report


def source_of(name: str, data_dir: str | Path | None) -> Source:
    """The files to read for a name of the catalogue; a FileNotFoundError if there are none."""
    directory = _directory(data_dir)
    source = _locate(name, directory)
    if source is None:
        kind, page = CATALOGUE[name]
        keys = " ".join(f"{stem}_{part}" for part in ("train", "test") for stem in STEMS[kind])
        npz = f"{name}.npz, {name}_sub.npz, {name}_*.npz (with the keys {keys})"
        looked = "; ".join([npz, *map(str, LAYOUTS.get(name, ()))])
        raise FileNotFoundError(
            f"no {name} in {directory}: looked for {looked}. Get it from {page}"
        )
    return source


def _directory(data_dir: str | Path | None) -> Path:
    given = data_dir or os.environ.get("FCCO_DATA")
    if not given:
        raise ValueError(
            "where are the data sets? Give --data-dir (data_dir in Python), or set the environment "
            "variable FCCO_DATA; digits needs neither"
        )
    directory = Path(given).expanduser()
    if not directory.is_dir():
        raise FileNotFoundError(
            f"{'data_dir' if data_dir else 'FCCO_DATA'} must be a directory, got {directory}"
        )
    return directory


def _locate(name: str, directory: Path) -> Source | None:
    whole, sub = directory / f"{name}.npz", directory / f"{name}_sub.npz"
    parts = sorted(directory.glob(f"{name}_*.npz"))
    for path in (whole, sub, *parts):
        if path.is_file():
            note = "complete" if path == whole else "a subset"
            read = partial(read_npz, path, STEMS[CATALOGUE[name][0]])
            return Source(path, note, path != whole, read)
    for layout in LAYOUTS.get(name, ()):
        if paths := layout.find(directory):
            return Source(
                paths[0], "complete, the official files", False, partial(layout.read, paths)
            )
    return None
