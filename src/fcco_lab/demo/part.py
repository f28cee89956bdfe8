"""A part of the demo: a problem, and those who try to solve it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

__all__ = ["Outcome", "Part", "Run", "Show"]

Show = Callable[[float, float], None]
"""For a progress bar: the share of the run that is done, and the latest objective."""


class Outcome(NamedTuple):
    """The exact objective against batch size or cost."""

    cost: list[float]
    objective: list[float]


Run = Callable[[int, float, Show], Outcome]
"""From a seed and the share of the full length that is to be run."""


class Part(NamedTuple):
    """A problem with its contenders by name, which all have the same data and the same length.

    Args:
        title: above the panel.
        cost: the horizontal axis, on a log scale.
        objective: the vertical axis.
        contenders: by label.
        shown: places on the horizontal axis that the table shows.
        emphasis: the contenders whose lines are drawn thicker.
        logarithmic: whether the vertical axis has a log scale.
    """

    title: str
    cost: str
    objective: str
    contenders: dict[str, Run]
    shown: Sequence[float]
    emphasis: Sequence[str] = ()
    logarithmic: bool = True
