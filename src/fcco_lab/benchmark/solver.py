"""A solver of the benchmark: a function that changes the weights of a task until it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fcco_lab.benchmark.problem import Problem
from fcco_lab.benchmark.ranges import Range

if TYPE_CHECKING:
    pass

__all__ = ["Solver"]


def _always(problem: Problem) -> bool:
    return True


@dataclass(frozen=True)
class Solver:
    """What is run, and which of its settings are tuned.

    Args:
        run: (task, **settings); it loops over ``task.batches()`` or ``task.samples()``, or while
            ``task.goes_on()``, and returns when they end.
        ranges: of the settings that are tuned.
        default: the untuned settings; those without a range stay as they are.
        applies: whether it can solve a problem.
        today: whether users have it without fcco, so that a gain is measured against it.
        paired: whether the objective must report ``Probe.pair`` (the fresh pair).

    Examples:
        >>> def wait(task, *, steps):
        ...     while task.goes_on():
        ...         pass
        >>> Solver(wait, default={"steps": 1}).today
        False
    """

    run: Callable[..., None]
    ranges: Mapping[str, Range] = field(default_factory=dict)
    default: Mapping[str, Any] = field(default_factory=dict)
    applies: Callable[[Problem], bool] = _always
    today: bool = False
    paired: bool = False
