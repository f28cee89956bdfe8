"""Survival outcomes: the time of each subject, and whether it is the time of the event."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fcco.estimators.likelihood import WeightedCox
from fcco.estimators.target import Phase, Rows, Target, spread
from fcco.losses import CoxLoss
from fcco.metrics import concordance_index

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
        if y.dtype.kind in "cmMSU":
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
    weight: NDArray[np.float64] | None = None

    def phases(self) -> Sequence[Phase]:
        """The partial likelihood, which needs no other phase before it."""
        if self.weight is not None:
            return (WeightedCox(self.times, self.events, self.weight, ties=self.ties),)
        return (CoxLoss(*self._tensors(), ties=self.ties),)

    def metric(self, scores: Tensor) -> float:
        """The concordance index."""
        weights = None if self.weight is None else torch.from_numpy(self.weight)
        return concordance_index(scores[:, 0], *self._tensors(), weights=weights)

    def folds(self, count: int, random: RandomState) -> Rows | None:
        """The same share of subjects with an event."""
        return spread(self.events, count, random)

    def take(self, rows: Rows) -> Self:
        """Some subjects."""
        weight = None if self.weight is None else self.weight[rows]
        return type(self)(self.times[rows], self.events[rows], self.ties, weight)

    def arrays(self) -> tuple[Any, ...]:
        """Times, events, the treatment of ties, and weights."""
        return self.times, self.events, self.ties, self.weight

    def _tensors(self) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(self.times), torch.from_numpy(self.events)
