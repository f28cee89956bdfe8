"""Survival outcomes: the time of each subject, and whether it is the time of the event."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fcco.data import AnchorData, BlockData
from fcco.estimators.target import Rows, Target, some_of_each
from fcco.metrics import concordance_index
from fcco.objectives import Cox
from fcco.problem.objective import Objective

__all__ = ["Outcomes", "outcomes"]


def outcomes(y: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Times and events from either form of y.

    Examples:
        >>> outcomes([[3.0, 1], [4.0, 0]])
        (array([3., 4.]), array([ True, False]))
        >>> outcomes(np.array([(True, 3.0)], dtype=[("seen", bool), ("days", float)]))
        (array([3.]), array([ True]))
    """
    y = np.asarray(y)
    if y.dtype.names is not None:
        kinds = {y.dtype[name].kind: name for name in y.dtype.names}
        numbers = [name for name in y.dtype.names if y.dtype[name].kind in "fiu"]
        if len(y.dtype.names) != 2 or "b" not in kinds or len(numbers) != 1 or y.ndim != 1:
            raise ValueError(
                "y must have two fields, a boolean (event) and a number (time), got "
                f"{y.dtype} of shape {y.shape}"
            )
        times, events = y[numbers[0]].astype(np.float64), y[kinds["b"]]
    else:
        if y.ndim != 2 or y.shape[1] != 2:
            raise ValueError(
                "y must be structured (event, time), or have shape (n, 2), columns time and "
                f"event, got shape {y.shape}"
            )
        if y.dtype.kind in "cmM":
            raise ValueError(f"y must hold real numbers, got {y.dtype}")
        times, flags = y.astype(np.float64).T
        if not np.isin(flags, (0, 1)).all():
            raise ValueError("y: the second column, event, must hold only 0 and 1")
        events = flags == 1
    wrong = ~(np.isfinite(times) & (times >= 0))
    if wrong.any():
        row = int(wrong.argmax())
        got = "NaN" if np.isnan(times[row]) else times[row]
        raise ValueError(f"y: times must be finite and not negative, got {got} in row {row}")
    return np.ascontiguousarray(times), np.ascontiguousarray(events)


@dataclass(frozen=True, eq=False)
class Outcomes(Target):
    """Times, and whether they are times of events."""

    times: NDArray[np.float64]
    events: NDArray[np.bool_]
    ties: str
    samples = 256

    def problem(self, inputs: Tensor) -> tuple[BlockData[Any], Objective]:
        """Events, each compared with its risk set."""
        times, events = torch.from_numpy(self.times), torch.from_numpy(self.events)
        data = AnchorData.survival(inputs, times, events, ties=self.ties)
        most = int(np.unique(self.times[self.events], return_counts=True)[1].max())
        return data, Cox(data.num_blocks, len(inputs), max_ties=most)

    def metric(self, scores: Tensor) -> float:
        """The concordance index."""
        times, events = torch.from_numpy(self.times), torch.from_numpy(self.events)
        return concordance_index(scores[:, 0], times, events)

    def held_out(self, fraction: float, random: RandomState) -> Rows:
        """Some with and some without an event."""
        return some_of_each(self.events, fraction, random)

    def take(self, rows: Rows) -> Self:
        """Some subjects."""
        return type(self)(self.times[rows], self.events[rows], self.ties)

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Times, events, and the treatment of ties."""
        return self.times, self.events, np.array(self.ties)
