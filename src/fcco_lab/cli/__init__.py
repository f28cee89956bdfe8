"""The ``fcco`` command."""

import sys
import warnings
from itertools import pairwise
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Run the command line: an error is one line that says what to do, ``--debug`` the trace.

    Without the libraries it needs, it says which extra to install.
    """
    debug = "--debug" in sys.argv
    if debug:
        sys.argv = [word for word in sys.argv if word != "--debug"]  # anywhere on the line
    else:
        warnings.showwarning = _one_line
    try:
        _check_words(sys.argv)
        from fcco_lab.cli.app import app

        app()
    except ModuleNotFoundError as missing:
        if debug or missing.name is None or missing.name.startswith("fcco"):
            raise
        sys.exit(f"fcco: this needs {missing.name}; install it with: pip install 'fcco[lab]'")
    except KeyboardInterrupt:
        if debug:
            raise
        sys.exit(130)  # before there was anything to save
    except Exception as error:
        if debug:
            raise
        words = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, OSError) and error.filename and error.strerror:
            words = f"{error.filename}: {error.strerror}"
        if type(error).__name__ not in ("Diverged", "Interrupted") and not isinstance(
            error, ValueError | OSError
        ):
            words += f" ({type(error).__name__}; --debug shows where)"  # it is no user's error
        sys.exit(f"fcco: {words}")


def _check_words(argv: list[str]) -> None:
    """An empty word is a variable that was not set; as a path it would be the current directory.

    But ``--set=target=`` gives a setting the empty text that is its default.
    """
    for before, word in pairwise(argv):
        if not word or (word.startswith("--") and word.find("=") == len(word) - 1):
            raise ValueError(f"nothing was given for {word[:-1] or before}")


def _one_line(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    sys.stderr.write(f"fcco: warning: {message}\n")
