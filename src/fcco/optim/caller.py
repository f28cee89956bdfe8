"""Whose line a warning is about."""

import sys

__all__ = ["users_line"]

_OURS = ("fcco", "fcco_lab", "torch")  # torch wraps every optimizer's ``step``


def users_line() -> int:
    """The ``stacklevel`` of the nearest caller that is neither ours nor torch's.

    Examples:
        >>> users_line() > 0
        True
    """
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        frame, level = frame.f_back, level + 1
    return level
