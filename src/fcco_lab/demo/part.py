"""A part of the demo: a problem, and those who try to solve it."""

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Outcome", "Part", "Run", "Show"]

Show = Callable[[float, float], None]
"""For a progress bar: the share of the run that is done, and the latest objective."""


class Outcome(NamedTuple):
    """The exact objective against cost, and a metric on held-out data at the end."""

    cost: list[float]
    objective: list[float]
    metric: float


Run = Callable[[int, float, Show], Outcome]
"""From a seed and the share of the full length that is to be run."""


class Part(NamedTuple):
    """A problem with its contenders by name, which all have the same data and the same length.

    Args:
        title: above the panel.
        cost: the horizontal axis.
        objective: the vertical axis, on a log scale.
        metric: the metric on held-out data.
        contenders: by label.
        emphasis: the contender whose line is drawn thicker.
    """

    title: str
    cost: str
    objective: str
    metric: str
    contenders: dict[str, Run]
    emphasis: str = ""
