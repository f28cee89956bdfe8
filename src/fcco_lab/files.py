"""Writing files: each one is there whole or not at all, whatever happens while it is written."""

import contextlib
import os
import re
import shutil
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, cast

__all__ = [
    "append",
    "beside",
    "checksum",
    "file_name",
    "regular",
    "remove",
    "sweep",
    "sync",
    "write",
]

_PIECE = 1 << 22
"""Bytes that are read, or written and summed, at a time."""


def file_name(text: str, longest: int = 120) -> str:
    """A valid file name for a text without slashes; different texts have different names.

    A long text is cut, and a checksum of all of it is added; so is one with characters that are
    replaced, spaces apart.

    Examples:
        >>> file_name("usps auc sox adam lr=0.1")
        'usps-auc-sox-adam-lr=0.1'
        >>> file_name("my:METHOD") != file_name("my/METHOD")
        True
    """
    words = re.sub(r"[^A-Za-z0-9=.,+_-]+", "-", text)
    if words == text.replace(" ", "-") and len(words) <= longest:
        return words
    return f"{words[: longest - 9]}-{zlib.crc32(text.encode()):08x}"


Content = str | Callable[[IO[bytes]], object]
"""Text, or a function that writes to the file it is given, with ``write`` alone."""


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
        """Write all of ``data`` without copying it."""
        view = memoryview(data)
        try:
            for start in range(0, 0 if self._error else len(view), _PIECE):
                piece = view[start : start + _PIECE]
                self._file.write(piece)
                self.checksum = zlib.crc32(piece, self.checksum)
        except OSError as error:
            self._error = error
        return len(view)

    def flush(self) -> None:
        """Do nothing: ``torch.save`` asks for it, and ``finish`` does it."""

    def finish(self) -> None:
        """Put everything on the disk, or raise the first error."""
        if self._error is not None:
            raise self._error
        self._file.flush()
        os.fsync(self._file.fileno())


def write(path: Path, content: Content, *, summed: bool = False) -> Path:
    """Write a file under a temporary name, then move it to ``path``.

    It is on the disk when this returns; if it cannot be written, nothing has changed.

    Args:
        path: its directory is made if it is missing.
        content: what to write.
        summed: add the checksum of the bytes to the name, which is returned.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     print(write(Path(directory) / "note.txt", "a", summed=True).name)
        ...     print(len(os.listdir(directory)))
        note-e8b7be43.txt
        1
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = beside(path)
    try:
        with temporary.open("wb") as file:
            stream = _Stream(file)
            if isinstance(content, str):
                stream.write(content.encode())
            else:
                content(cast(IO[bytes], stream))
            stream.finish()
        if summed:
            path = path.with_name(f"{path.stem}-{stream.checksum:08x}{path.suffix}")
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to report
            temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)
    return path


def append(path: Path, line: str) -> None:
    """Add a line to a file; it is on the disk when this returns."""
    with path.open("a") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def beside(path: Path) -> Path:
    """A temporary name in the same directory, which no other process on any machine chooses."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")


def sweep(directory: Path, *names: str) -> None:
    """Remove the temporary files for ``names`` (patterns); no process may be writing them."""
    for name in names:
        for left in directory.glob(f".{name}.{'[0-9a-f]' * 32}.part"):
            remove(left)


def remove(path: Path) -> None:
    """Remove a file, a link, or a directory, no part of which stays under its own name."""
    if path.is_dir() and not path.is_symlink():
        gone = path if path.suffix == ".part" else beside(path)
        os.replace(path, gone)
        shutil.rmtree(gone, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def regular(path: Path) -> Path:
    """``path``, if it is safe to open: reading a fifo would wait for a writer."""
    if not path.is_file():
        raise ValueError(f"{path.name} is not a file")
    return path


def checksum(path: Path) -> int:
    """CRC-32 of a file, read in pieces."""
    total, piece = 0, memoryview(bytearray(_PIECE))
    with regular(path).open("rb", buffering=0) as file:
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
