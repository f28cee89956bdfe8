"""Injected faults: the k-th operation fails, or Ctrl-C arrives at the k-th line."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

import fcco.kernel
from fcco.kernel.writes import commit

_PACKAGE = str(Path(fcco.kernel.__file__).parents[1]) + os.sep
_COMMIT = commit.__wrapped__.__code__  # below no_grad
_COMMITTERS = {"_advance", "snapshot", "restart"}
"""The functions that commit for good; other calls restore the state and may fail."""


class Fault(Exception):
    """The exception of an operation that fails on purpose."""


class FailAt(TorchDispatchMode):
    """Fails the k-th operation on tensors; those of a commit are noted instead, in ``committed``.

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
        self.committed: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count, and fail at the k-th operation."""
        if _committing(sys._getframe()):
            self.committed.add(str(func.overloadpacket))
        elif func.namespace != "profiler" and not (self.aligned and _placing()):
            self.count += 1
            if self.count == self.k:
                raise self.kind(f"operation {self.k}, {func}")
        return func(*args, **(kwargs or {}))


def _placing() -> bool:
    caller = sys._getframe(4)  # below the mode are two wrappers of torch
    return caller.f_code.co_name == "_places"


def _committing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code is _COMMIT:
            caller = frame.f_back
            while caller is not None and not caller.f_code.co_filename.startswith(_PACKAGE):
                caller = caller.f_back  # no_grad's wrapper
            return caller is not None and caller.f_code.co_name in _COMMITTERS
        frame = frame.f_back
    return False


@contextmanager
def interrupt_at(k: int) -> Iterator[None]:
    """Raises KeyboardInterrupt before the k-th line of the package that runs for the first time."""
    lines: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            return None
        if event == "line":
            lines.add((code.co_filename, frame.f_lineno))
            if len(lines) == k:
                sys.settrace(None)
                raise KeyboardInterrupt(f"line {frame.f_lineno} of {Path(code.co_filename).name}")
        return trace

    before = sys.gettrace()  # a debugger, or the count of covered lines
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
