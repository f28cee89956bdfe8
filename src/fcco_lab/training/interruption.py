"""Ctrl-C and SIGTERM as a wish that the training loop sees between two steps."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interruption"]


class Interruption:
    """While this is entered, the first signal is noted and a second one acts as usual.

    Examples:
        >>> with Interruption() as wish:
        ...     signal.raise_signal(signal.SIGTERM)
        ...     wish.signal == signal.SIGTERM
        True
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in self.SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
