"""The processes of one run: the first of them speaks and writes, and all decide alike."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist

from fcco.distributed import Ranks

__all__ = ["Crew", "check_device", "step_aside"]

T = TypeVar("T")


def check_device(name: str) -> None:
    """Raise a ``ValueError`` unless torch finds the device; none is started by asking.

    Examples:
        >>> check_device("mars")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: device 'mars' is not there; torch finds cpu...
    """
    try:
        device = torch.device(name)
        there = (device.index or 0) < _count(device.type)
    except RuntimeError:  # torch knows no such kind
        there = False
    if not there:
        found = [kind for kind in ("cpu", "cuda", "mps", "xpu") if _count(kind)]
        raise ValueError(f"device {name!r} is not there; torch finds {', '.join(found)}")


def _count(kind: str) -> int:
    module = torch.get_device_module(kind)
    return int(module.device_count()) if module.is_available() else 0


class Crew:
    """All ranks of the process group; a single one where there is none.

    Args:
        device: where the run computes, and words can be exchanged.

    Examples:
        >>> crew = Crew()
        >>> crew.lead, crew.highest(3, 0)
        (True, [3, 0])
    """

    def __init__(self, device: str = "cpu") -> None:
        check_device(device)
        self.ranks = Ranks()
        self.device = torch.device(device)

    @property
    def rank(self) -> int:
        """The number of this process."""
        return self.ranks.rank

    @property
    def size(self) -> int:
        """How many there are."""
        return self.ranks.size

    @property
    def lead(self) -> bool:
        """Whether this is the one that speaks and writes."""
        return self.rank == 0

    @contextmanager
    def together(self) -> Iterator[None]:
        """Around what may fail on some ranks: then all stop.

        The first rank where it failed raises its error, and the others end without a word. What is
        inside must ask nothing of other ranks, or fail on all of them.
        """
        if self.size == 1:
            yield
            return
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            failure = error
        first = self.size - self.highest(0 if failure is None else self.size - self.rank)[0]
        if failure is not None and first == self.rank:
            raise failure
        if first < self.size:
            step_aside()

    def highest(self, *numbers: int) -> list[int]:
        """The largest that any rank has of each, in one small exchange."""
        if self.size == 1:
            return list(numbers)
        words = torch.tensor(numbers, dtype=torch.int64, device=self.device)
        dist.all_reduce(words, dist.ReduceOp.MAX)
        return [int(word) for word in words.tolist()]

    def told(self, value: T) -> T:
        """What the lead has."""
        if self.size == 1:
            return value
        words: list[Any] = [value]
        dist.broadcast_object_list(words, device=self.device)
        told: T = words[0]
        return told

    def gathered(self, value: T) -> list[T]:
        """What every rank has, in their order."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values


def step_aside() -> NoReturn:
    """End as a process of a run that failed, of which another one says why.

    It is given time to: whoever started them ends all as soon as one is gone.
    """
    time.sleep(5)
    sys.exit(1)
