"""Ctrl-C and SIGTERM as a request that the training loop sees between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["noted_signals"]


@contextmanager
def noted_signals() -> Iterator[list[int]]:
    """While inside, the first signal is appended to the list, and a second one acts as usual.

    Examples:
        >>> with noted_signals() as seen:
        ...     signal.raise_signal(signal.SIGTERM)
        ...     seen == [signal.SIGTERM]
        True
    """
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield seen
    finally:
        restore()
