"""Injected faults: the k-th operation fails, or Ctrl-C arrives at the k-th line."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

import fcco.kernel

_PACKAGE = str(Path(fcco.kernel.__file__).parents[1]) + os.sep
COMMIT = {
    "aten.copy_",  # rows, buffers, the previous point
    "aten.fill_",  # counters
    "aten.index_copy_",  # rows of the table
    "aten.index_fill_",  # ages, visited
    "aten._foreach_copy_",
    "aten._foreach_mul_",  # weight decay
    "aten._foreach_add_",  # the move
}
"""What happens to tensors once every check has passed."""


class Fault(Exception):
    """The exception of an operation that fails on purpose."""


class FailAt(TorchDispatchMode):
    """Fails the k-th operation on tensors, but for the changes of a commit, which cannot fail.

    Whatever else a commit does (it sorts the blocks of an overlay, say) comes before its first
    change, and may fail.

    Args:
        k: the number of the operation, from 1.
        kind: the type of the exception.
        aligned: do not count the operations with which a table finds the rows of a rank, which the
            first rank does not need: the k-th operation is then the same on all ranks.
    """

    def __init__(self, k: int, kind: type[BaseException] = Fault, *, aligned: bool = False) -> None:
        super().__init__()
        self.k = k
        self.kind = kind
        self.aligned = aligned
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count, and fail at the k-th operation."""
        if str(func.overloadpacket) in COMMIT and _is_committing():
            pass
        elif func.namespace != "profiler" and not (self.aligned and _placing()):
            self.count += 1
            if self.count == self.k:
                raise self.kind(f"operation {self.k}, {func}")
        return func(*args, **(kwargs or {}))


def _placing() -> bool:
    caller: FrameType | None = sys._getframe(2)
    while caller is not None and not caller.f_code.co_filename.startswith(_PACKAGE):
        caller = caller.f_back  # wrappers of torch, whose number depends on its version
    return caller is not None and caller.f_code.co_name == "_places"


def _is_committing() -> bool:
    """Ctrl-C is held back while a step is committed."""
    return signal.getsignal(signal.SIGINT) is not signal.default_int_handler


@contextmanager
def interrupt_at(k: int) -> Iterator[None]:
    """Sends Ctrl-C before the k-th line of the package that runs for the first time."""
    lines: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            return None
        if event == "line":
            lines.add((code.co_filename, frame.f_lineno))
            if len(lines) == k:
                sys.settrace(None)
                # The handler that is installed decides, as with a key that is pressed.
                signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()  # a debugger, or the count of covered lines
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
