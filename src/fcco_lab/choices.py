"""A word that must be one of some: the error names the nearest of them."""

import difflib
from collections.abc import Iterable

__all__ = ["choose", "suggestion"]


def choose(what: str, word: str, known: Iterable[str], *, otherwise: str = "") -> None:
    """Raise a ``ValueError`` unless ``word`` is one of the ``known``.

    Args:
        what: the word stands for.
        word: as it was typed.
        known: all there are.
        otherwise: what else is allowed, for the message.

    Examples:
        >>> choose("scale", "Labtop", ("laptop", "paper"))
        Traceback (most recent call last):
        ValueError: unknown scale 'Labtop' (did you mean 'laptop'?); there are: laptop, paper
    """
    names = list(known)
    if word not in names:
        listed = ", ".join(names) + otherwise
        raise ValueError(f"unknown {what} {word!r}{suggestion(word, names)}; there are: {listed}")


def suggestion(word: str, known: Iterable[str]) -> str:
    """The nearest of the ``known`` in brackets, whatever its case; nothing if none is near.

    Examples:
        >>> suggestion("SOX", ["sox", "soap"]), suggestion("adam", ["sox", "soap"])
        (" (did you mean 'sox'?)", '')
    """
    folded = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), folded, n=1)
    return f" (did you mean {folded[close[0]]!r}?)" if close else ""
