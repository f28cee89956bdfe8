"""Files that are there whole or not at all, whatever happens while they are written."""

import contextlib
import os
from pathlib import Path

__all__ = ["sync", "write_bytes", "write_text"]


def write_bytes(path: Path, data: bytes | memoryview, *, beside: Path | None = None) -> None:
    """Write ``beside`` (by default a hidden name in the same directory), then move into place.

    It is on the disk when this returns; if it cannot be written, nothing has changed.
    """
    beside = path.with_name(f".{path.name}.writing") if beside is None else beside
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):  # what went wrong first is what to tell
            beside.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """The same for text.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     write_text(Path(directory) / "note", "a")
        ...     [file.name for file in Path(directory).iterdir()]
        ['note']
    """
    write_bytes(path, text.encode())


def sync(directory: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
