"""Writing files: each one is there whole or not at all, whatever happens while it is written."""

import contextlib
import os
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

__all__ = ["append", "file_name", "remove", "remove_leftovers", "temporary_name", "write"]


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


def temporary_name(path: Path) -> Path:
    """The name under which this process writes what is to be moved to ``path``."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def write(path: Path, content: str | Callable[[IO[bytes]], object]) -> None:
    """Write a file under a temporary name, then move it to ``path``.

    It is on the disk when this returns; if it cannot be written, nothing has changed.

    Args:
        path: its directory is made if it is missing.
        content: text, or a function that writes to the file it is given.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_name(path)
    try:
        with temporary.open("wb") as file:
            if isinstance(content, str):
                file.write(content.encode())
            else:
                content(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):  # the first error is the one to report
            temporary.unlink(missing_ok=True)
        # Of a full disk torch.save reports a position in its archive, after the error itself.
        if isinstance(error.__context__, OSError):
            raise error.__context__ from error
        raise


def append(path: Path, line: str) -> None:
    """Add a line to a file; it is on the disk when this returns."""
    with path.open("a") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def remove(path: Path) -> None:
    """Remove a file, a link, or a directory, no part of which stays under its own name."""
    if path.is_dir() and not path.is_symlink():
        gone = temporary_name(path)
        os.replace(path, gone)
        shutil.rmtree(gone, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_leftovers(directory: Path) -> None:
    """Remove the temporary files of processes that were killed; none may be writing there."""
    for left in directory.glob(".*.part"):
        remove(left)
