"""Data sets by name: their kinds and sources, where their files are, and loading them."""

import logging
import os
from pathlib import Path
from typing import Any

from fcco.data.digits import load_digits
from fcco_lab.choices import choose
from fcco_lab.datasets.arrays import READERS, read_npz
from fcco_lab.datasets.official import LAYOUTS
from fcco_lab.datasets.records import Classified, Data, Kind, Ranked, Survival

__all__ = [
    "CATALOGUE",
    "available",
    "kind_of_name",
    "load_classes",
    "load_named",
    "load_ranking",
    "load_survival",
    "locate",
]

log = logging.getLogger("fcco")

_KEYS: dict[Kind, str] = {"classes": "x y", "survival": "x t e", "ranking": "x y q"}
"""The keys of an npz file of each kind, which end in _train and _test."""

_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
_DEEPSURV = "https://github.com/jaredleekatzman/DeepSurv"
_LIGHTGBM = "https://github.com/microsoft/LightGBM/tree/master/examples/lambdarank"
_TINY = "http://cs231n.stanford.edu/tiny-imagenet-200.zip (non-commercial research only)"
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
    "tinyimagenet100": ("classes", _TINY),
    "a9a": ("classes", f"{_LIBSVM}/binary.html#a9a"),
    "surv_metabric": ("survival", _DEEPSURV),
    "surv_gbsg": ("survival", _DEEPSURV),
    "surv_support": ("survival", _DEEPSURV),
    "lgb_lambdarank": ("ranking", _LIGHTGBM),
}
"""The kind of each data set, and where to get it."""

ALIASES = {name.removeprefix("surv_"): name for name in CATALOGUE if name.startswith("surv_")}


def kind_of_name(name: str) -> Kind:
    """The kind of a data set of the catalogue.

    Examples:
        >>> kind_of_name("metabric")
        'survival'
    """
    choose("data set", name, [*CATALOGUE, *ALIASES], otherwise="; or a file of your own")
    return CATALOGUE[ALIASES.get(name, name)][0]


def locate(name: str, data_dir: str | Path | None) -> list[Path]:
    """The files of a data set: one npz file or its official files.

    Raises:
        FileNotFoundError: says what was looked for, and where to get it.
    """
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
    whole, subset = directory / f"{name}.npz", directory / f"{name}_sub.npz"
    for path in (whole, subset, *sorted(directory.glob(f"{name}_*.npz"))):
        if path.is_file():
            return [path]
    if name in LAYOUTS and (paths := LAYOUTS[name].find(directory)):
        return paths
    kind, page = CATALOGUE[name]
    keys = " ".join(f"{key}_{part}" for part in ("train", "test") for key in _KEYS[kind].split())
    official = f"; {LAYOUTS[name]}" if name in LAYOUTS else ""
    raise FileNotFoundError(
        f"no {name} in {directory}: looked for {name}.npz, {name}_sub.npz, {name}_*.npz (with the "
        f"keys {keys}){official}. Get it from {page}"
    )


def available(data_dir: str | Path | None = None) -> list[str]:
    """The names of the catalogue that can be loaded; digits comes with scikit-learn.

    Examples:
        >>> "digits" in available()
        True
    """
    found = ["digits"]
    for name in CATALOGUE:
        try:
            locate(name, data_dir)
        except (FileNotFoundError, ValueError):
            continue
        found.append(name)
    return found


def load_named(name: str, data_dir: str | Path | None = None) -> tuple[Data, Data]:
    """Training and test part of a data set of any kind; arguments as of ``load_classes``."""
    kind = kind_of_name(name)
    name = ALIASES.get(name, name)
    if name == "digits":
        train, test = (Classified(x.view(-1, 1, 8, 8), y) for x, y in load_digits(seed=0))
        return train, test
    first, *others = locate(name, data_dir)
    if others:
        log.info("%s: read from %s, the official files", name, first.parent)
    elif first.stem == name:
        log.info("%s: read from %s", name, first)
    else:
        log.warning(
            "%s: read from %s, a subset: it does not reproduce published numbers", name, first
        )
    arrays = LAYOUTS[name].read([first, *others]) if others else read_npz(first)
    train, test = READERS[kind](arrays, first)
    return train, test


def _load(name: str, data_dir: str | Path | None, kind: Kind) -> Any:
    found = kind_of_name(name)
    if found != kind:
        raise ValueError(f"{name} is for load_{found}, not for load_{kind}")
    return load_named(name, data_dir)


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
    return _load(name, data_dir, "classes")  # type: ignore[no-any-return]


def load_survival(name: str, data_dir: str | Path | None = None) -> tuple[Survival, Survival]:
    """A survival data set: training and test part, with the features of the file.

    Args:
        name: surv_metabric, surv_gbsg or surv_support, also without "surv_".
        data_dir: the directory of NAME.npz; by default the environment variable FCCO_DATA.
    """
    return _load(name, data_dir, "survival")  # type: ignore[no-any-return]


def load_ranking(name: str, data_dir: str | Path | None = None) -> tuple[Ranked, Ranked]:
    """A ranking data set: training and test part.

    Args:
        name: lgb_lambdarank.
        data_dir: the directory of NAME.npz; by default the environment variable FCCO_DATA.
    """
    return _load(name, data_dir, "ranking")  # type: ignore[no-any-return]
