"""The shapes of the arrays in an npz file, without reading the arrays."""

import zipfile
from pathlib import Path

from fcco_lab.datasets.official import reading

__all__ = ["npz_shapes"]


def npz_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each array by key; an error names the file.

    Examples:
        >>> import tempfile, numpy
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     numpy.savez(f"{folder}/a.npz", x=numpy.zeros((7, 2)))
        ...     npz_shapes(Path(folder) / "a.npz")
        {'x': (7, 2)}
    """
    from numpy.lib import format as layout

    shapes: dict[str, tuple[int, ...]] = {}
    with reading(path), zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            with archive.open(member) as file:
                version = layout.read_magic(file)
                read = (
                    layout.read_array_header_1_0
                    if version == (1, 0)
                    else layout.read_array_header_2_0
                )
                shapes[member.removesuffix(".npy")] = read(file)[0]
    return shapes
