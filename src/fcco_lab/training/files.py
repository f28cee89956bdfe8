"""Files that are there whole or not at all, whatever happens while they are written."""

import contextlib
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, cast

__all__ = ["checksum", "sync", "write_stream", "write_summed", "write_text"]

_PIECE = 1 << 22
"""Bytes that are read, or written and summed, at a time."""


class _Stream:
    """A file to be written once from beginning to end, with the checksum of what was written.

    An error of the disk is kept for ``finish``, and what follows it goes nowhere: ``torch.save``
    would go on to the end of its archive, and report a position in a zip file, not a full disk.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.checksum = 0
        self._file = file
        self._error: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Write all of ``data``; no copy of it is made."""
        view = memoryview(data)
        for start in range(0, len(view), _PIECE):
            self._put(view[start : start + _PIECE])
        return len(view)

    def flush(self) -> None:
        """Nothing: ``torch.save`` asks for it, and ``finish`` does it."""

    def finish(self) -> None:
        """Put everything on the disk, or raise what went wrong first."""
        if self._error is not None:
            raise self._error
        self._file.flush()
        os.fsync(self._file.fileno())

    def _put(self, piece: memoryview) -> None:
        if self._error is None:
            try:
                self._file.write(piece)
                self.checksum = zlib.crc32(piece, self.checksum)
            except OSError as error:
                self._error = error


Fill = Callable[[IO[bytes]], object]
"""Writes to the file that it is given, with ``write`` alone."""


def write_summed(name: Callable[[int], Path], fill: Fill, *, beside: Path) -> Path:
    """Let ``fill`` write ``beside``, then move that to the name that its checksum gives.

    It is on the disk when this returns; if it cannot be written, nothing has changed.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     here = Path(directory)
        ...     write_summed(lambda checksum: here / f"{checksum:08x}",
        ...                  lambda stream: stream.write(b"a"), beside=here / "writing").name
        'e8b7be43'
    """
    try:
        with beside.open("wb") as file:
            stream = _Stream(file)
            fill(cast(IO[bytes], stream))
            stream.finish()
        path = name(stream.checksum)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):  # what went wrong first is what to tell
            beside.unlink(missing_ok=True)
        raise
    sync(path.parent)
    return path


def write_stream(path: Path, fill: Fill) -> None:
    """The same for a name that is known, written under a hidden one in the same directory."""
    write_summed(lambda _: path, fill, beside=path.with_name(f".{path.name}.writing"))


def write_text(path: Path, text: str) -> None:
    """The same for text.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     write_text(Path(directory) / "note", "a")
        ...     [file.name for file in Path(directory).iterdir()]
        ['note']
    """
    write_stream(path, lambda stream: stream.write(text.encode()))


def checksum(path: Path) -> int:
    """Of a file, read in pieces."""
    total, piece = 0, memoryview(bytearray(_PIECE))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(piece):
            total = zlib.crc32(piece[:count], total)
    return total


def sync(directory: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
