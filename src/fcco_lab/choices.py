"""Check a word against a list; the error suggests the nearest entry."""

import difflib
from collections.abc import Iterable

__all__ = ["choose", "suggestion"]


def choose(what: str, word: str, known: Iterable[str], *, otherwise: str = "") -> None:
    """Raise a ``ValueError`` unless ``word`` is one of the ``known`` words.

    Args:
        what: what the word names.
        word: the word as it was typed.
        known: all words that are allowed.
        otherwise: text on what else is allowed, for the message.

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
    """The nearest ``known`` word, ignoring case, in brackets; empty if none is near.

    Examples:
        >>> suggestion("SOX", ["sox", "soap"]), suggestion("adam", ["sox", "soap"])
        (" (did you mean 'sox'?)", '')
    """
    folded = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), folded, n=1)
    return f" (did you mean {folded[close[0]]!r}?)" if close else ""
