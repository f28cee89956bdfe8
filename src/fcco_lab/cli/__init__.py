"""The ``fcco`` command."""

import os
import sys
import time
import warnings
from itertools import pairwise
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Run the command line: an error is one line that says what to do, ``--debug`` the trace.

    Without the libraries it needs, it says which extra to install.
    """
    if "--debug" in sys.argv:
        sys.argv = [word for word in sys.argv if word != "--debug"]  # anywhere on the line
        _run()
        return
    warnings.showwarning = _one_line
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(130)  # before there was anything to save
    except Exception as error:
        message = f"fcco: {_describe(error)}"
        if os.environ.get("WORLD_SIZE", "1") != "1":
            _exit_in_turn(message, error)
        sys.exit(message)


def _exit_in_turn(message: str, error: Exception) -> None:
    """Of several processes one tells the reason, and torchrun ends the others while they wait.

    The first one tells it, or another that alone has it, but none that merely lost the others.
    """
    if not _is_users(error):
        time.sleep(30)
    elif os.environ.get("RANK") != "0":
        time.sleep(10)
    sys.stderr.write(message + "\n")
    sys.stderr.flush()
    os._exit(1)  # torchrun waits for the end of the process, and torch's threads take seconds


def _run() -> None:
    # An empty word is a variable that was not set; as a path it would be the current directory.
    for before, word in pairwise(sys.argv):
        if not word or (word.startswith("--") and word.find("=") == len(word) - 1):
            raise ValueError(f"nothing was given for {word[:-1] or before}")
    from fcco_lab.cli.app import app

    app()


def _is_users(error: Exception) -> bool:
    """Whether the message was written for the user of the command."""
    names = ("Diverged", "Interrupted")  # whose modules import torch
    return isinstance(error, ValueError | OSError) or type(error).__name__ in names


def _describe(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("fcco"):
        return f"this needs {error.name}; install it with: pip install 'fcco[lab]'"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    words = " ".join(str(error).split()) or type(error).__name__
    return words if _is_users(error) else f"{words} ({type(error).__name__}; --debug shows where)"


def _one_line(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    sys.stderr.write(f"fcco: warning: {message}\n")
