"""Reading one npz file, with errors that name the file and the key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fcco_lab.datasets.official import reading

if TYPE_CHECKING:
    from fcco_lab.datasets.official import Arrays

__all__ = ["read_npz"]


def read_npz(
    path: Path, stems: Sequence[str], parts: Sequence[str] = ("_train", "_test")
) -> Arrays:
    """The arrays of each stem with each ending, such as ``x_train``.

    A file with only some of the classes may renumber them as ``task_*``, used instead of ``y_*``.
    """
    import numpy as np

    arrays: Arrays = {}
    # Opened here, for np.load leaves a broken file open.
    with path.open("rb") as handle:
        with reading(path):
            # allow_pickle=False: an array of objects could run code when it is read.
            file = np.load(handle, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError("it is not an npz file")
        for key in [f"{stem}{part}" for part in parts for stem in stems]:
            source = key.replace("y_", "task_") if "task_train" in file.files else key
            if source not in file.files:
                raise ValueError(f"{path} has no key {source!r}, only {sorted(file.files)}")
            with reading(f"{path}, key {source!r}"):
                arrays[key] = file[source]
    return arrays
