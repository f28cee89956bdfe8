"""Python objects that a user names as ``module:name``, on the command line or in a config file."""

import hashlib
import importlib
import inspect
import os
import sys
from pathlib import Path
from typing import Any

from fcco_lab.choices import suggestion

__all__ = ["is_named", "load_named", "source_of_named"]


def is_named(word: str) -> bool:
    """Whether a word is ``module:name``; names of methods and objectives have no colon.

    Examples:
        >>> is_named("mine:METHOD"), is_named("sox")
        (True, False)
    """
    return ":" in word


def load_named(what: str, word: str) -> Any:
    """The object; its module is looked for in the current directory, then among the installed.

    Args:
        what: what it is to be, for errors.
        word: as ``module:name``.

    Examples:
        >>> load_named("method", "fcco.methods:SOX").name
        'sox'
        >>> load_named("method", "fcco.methods:SXO")
        Traceback (most recent call last):
        ValueError: method 'fcco.methods:SXO': the module has no 'SXO' (did you mean 'SOX'?)
    """
    place, _, name = word.partition(":")
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does
    try:
        module = importlib.import_module(place)
    except Exception as error:
        raise ValueError(
            f"{what} {word!r}: cannot import {place!r} from {here} or the installed packages: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not hasattr(module, name):
        near = suggestion(name, vars(module))
        raise ValueError(f"{what} {word!r}: the module has no {name!r}{near}")
    return getattr(module, name)


def source_of_named(word: str) -> str:
    """A digest of the file of the module, so that a changed method is another run."""
    file = inspect.getsourcefile(sys.modules[word.partition(":")[0]])
    assert file is not None
    return f"{Path(file).name}, sha256 {hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]}"
