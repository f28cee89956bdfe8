"""Running sums: what a loss keeps beside its table so that a step need not add up all of it."""

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

if TYPE_CHECKING:
    from fcco.objectives.score import ScoreObjective

__all__ = ["Change", "RunningSums", "Update"]


@dataclass(frozen=True)
class Change:
    """A batch of new scores beside a table that they have not been written to yet."""

    index: Tensor
    """(B,), the samples, distinct."""
    scores: Tensor
    """(B, T), their new scores."""
    remembered: Tensor
    """(N, T), the table without them."""
    known: Tensor
    """(N,), which samples the table has a score of."""
    count: int
    """How many samples have a score, those of the batch included."""
    slopes: bool
    """Whether dF/dh is wanted."""
    writes: bool
    """Whether the batch is remembered: not in eval mode, nor without gradients."""

    @property
    def all_seen(self) -> bool:
        """Whether every sample has a score."""
        return self.count == len(self.known)

    @cached_property
    def table(self) -> Tensor:
        """(N, T), the table with the new scores: a copy of all of it."""
        return self.remembered.index_copy(0, self.index, self.scores)

    @cached_property
    def seen(self) -> Tensor:
        """(N,), which samples have a score."""
        return self.known.index_fill(0, self.index, True)


@dataclass(frozen=True)
class Update:
    """What came of a change: the value and slopes of the loss, and what is to be written."""

    value: Tensor
    slope: Tensor | None
    """(B, T), dF/dh of the batch."""
    writes: dict[str, tuple[Any, Tensor]] = field(default_factory=dict)
    """Name of a sum, places in it, and what to write there."""


class RunningSums(nn.Module):
    """Sums over a table of scores, which ``ScoreLoss`` owns.

    Sums that depend on the table alone lie in ``cache``: an update may change them at once, and
    they are not saved, but formed anew where they are missing or an error occurred. Sums that
    depend on the history of the table are persistent buffers, written after the last check.
    """

    def __init__(self, objective: "ScoreObjective") -> None:
        super().__init__()
        self.objective = objective
        self.cache: dict[str, Tensor] = {}
        self.invalid = False
        """Whether persistent sums no longer belong to the table."""

    def form(self, scores: Tensor, seen: Tensor) -> dict[str, Tensor]:
        """Form everything in ``cache`` from the table."""
        return {}

    @abstractmethod
    def update(self, change: Change) -> Update | None:
        """The loss after a change, in less time than ``exact`` takes; None: call that instead."""

    def prepare(self, scores: Tensor, seen: Tensor) -> None:
        """Form what is missing, or lies on another device, before an update."""
        if self._stale(scores):
            self.cache = self.form(scores, seen)

    def write(self, writes: dict[str, tuple[Any, Tensor]]) -> None:
        """Write what an update found; nothing can fail any more."""
        for name, (places, values) in writes.items():
            getattr(self, name)[places] = values

    def forget(self) -> None:
        """Drop the cache: the table was written by others."""
        self.cache = {}

    def invalidate(self) -> None:
        """Form all sums anew before the next update: the scores of the table were rounded."""
        self.cache = {}
        self.invalid = True

    def _stale(self, scores: Tensor) -> bool:
        return not self.cache or next(iter(self.cache.values())).device != scores.device

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self.forget()
        return super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state["cache"] = {}
        return state

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.forget()
        super()._load_from_state_dict(*args, **kwargs)
