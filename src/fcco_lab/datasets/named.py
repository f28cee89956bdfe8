"""Data sets by name, read from a directory that the user names, as tensors."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from fcco.data.digits import load_digits
from fcco_lab.datasets.arrays import classified, ranked, survival
from fcco_lab.datasets.catalogue import Source, resolve, source_of
from fcco_lab.datasets.records import Classified, Ranked, Survival

if TYPE_CHECKING:
    from fcco_lab.datasets.official import Arrays

__all__ = ["load_classes", "load_ranking", "load_survival"]

log = logging.getLogger("fcco")


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
        parts = load_digits(seed=0)
        log.info("digits: read from scikit-learn (complete)")
        train, test = (Classified(x.view(-1, 1, 8, 8), y) for x, y in parts)
        return train, test
    source, arrays = _read(name, data_dir)
    train, test = classified(arrays, source.path, "features" if name == "a9a" else "images")
    return train, test


def load_survival(name: str, data_dir: str | Path | None = None) -> tuple[Survival, Survival]:
    """A survival data set: training and test part, with the features of the file.

    Args:
        name: surv_metabric, surv_gbsg or surv_support, also without "surv_".
        data_dir: the directory of NAME.npz; by default the environment variable FCCO_DATA.
    """
    source, arrays = _read(resolve(name, "survival"), data_dir)
    train, test = survival(arrays, source.path)
    return train, test


def load_ranking(name: str, data_dir: str | Path | None = None) -> tuple[Ranked, Ranked]:
    """A ranking data set: training and test part.

    Args:
        name: lgb_lambdarank.
        data_dir: the directory of NAME.npz; by default the environment variable FCCO_DATA.
    """
    source, arrays = _read(resolve(name, "ranking"), data_dir)
    train, test = ranked(arrays, source.path)
    return train, test


def _read(name: str, data_dir: str | Path | None) -> tuple[Source, Arrays]:
    source = source_of(name, data_dir)
    if source.subset:
        log.warning(
            "%s: read from %s, a subset: it does not reproduce published numbers", name, source.path
        )
    else:
        log.info("%s: read from %s (%s)", name, source.path, source.note)
    return source, source.read()
