"""The places at which a step may look at the objective."""

from enum import Enum

__all__ = ["Point"]


class Point(Enum):
    """A point of parameter space that a method evaluates with the sample of this step.

    Examples:
        >>> [point.value for point in Point]
        ['current', 'previous', 'snapshot']
    """

    CURRENT = "current"
    """w_t, where the step is taken."""
    PREVIOUS = "previous"
    """w_{t-1}, where the step before was taken."""
    SNAPSHOT = "snapshot"
    """The point of the last exact pass (version 3)."""
