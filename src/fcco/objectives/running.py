"""Running sums: what a loss keeps beside its table, so that a step is cheaper than a full pass."""

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from fcco.objectives.score import ScoreObjective

__all__ = ["Change", "RunningSums", "Update"]


@dataclass(frozen=True)
class Change:
    """A batch of new scores, and the table to which they have not been written yet."""

    index: Tensor
    """(B,), the samples of the batch, which are distinct."""
    scores: Tensor
    """(B, T), the new scores of these samples."""
    remembered: Tensor
    """(N, T), the table before the change."""
    known: Tensor
    """(N,), whether the table has a score of each sample before the change."""
    count: int
    """Number of samples that have a score after the change."""
    slopes: bool
    """Whether dF/dh is needed."""
    writes: bool
    """Whether the batch will be written to the table: not in eval mode, nor without gradients."""

    @property
    def all_seen(self) -> bool:
        """Whether every sample has a score."""
        return self.count == len(self.known)

    @cached_property
    def table(self) -> Tensor:
        """(N, T), a copy of the table with the new scores."""
        return self.remembered.index_copy(0, self.index, self.scores)

    @cached_property
    def seen(self) -> Tensor:
        """(N,), whether each sample has a score after the change."""
        return self.known.index_fill(0, self.index, True)


@dataclass(frozen=True)
class Update:
    """The result of a change: the value and slopes of the loss, and what to write."""

    value: Tensor
    slope: Tensor | None
    """(B, T), dF/dh of the batch, or None if it was not needed."""
    writes: dict[str, tuple[Any, Tensor]] = field(default_factory=dict)
    """Maps the name of a buffer to the places to write to and the values to write there."""


class RunningSums(nn.Module):
    """Base class of sums over a table of scores; ``ScoreLoss`` owns the table.

    Sums that depend on the table alone are kept in ``cache``. An update may change them at once.
    They are not saved, but computed again if they are missing or if an error occurred. Sums that
    depend on the history of the table are persistent buffers, written after the last check.
    """

    def __init__(self, objective: "ScoreObjective") -> None:
        super().__init__()
        self.objective = objective
        self.cache: dict[str, Tensor] = {}
        self.invalid = False
        """Whether the persistent sums no longer match the table."""
        self._table: tuple[Tensor, int] | None = None
        """The table that the sums were last written for, and its version; None if unknown."""

    def form(self, scores: Tensor, seen: Tensor) -> dict[str, Tensor]:
        """Compute everything in ``cache`` from the table."""
        return {}

    @abstractmethod
    def update(self, change: Change) -> Update | None:
        """Return the loss after a change, or None if the caller must call ``exact`` instead."""

    def prepare(self, scores: Tensor, seen: Tensor) -> None:
        """Compute what is missing, or lies on another device, before an update."""
        # Forming the cache costs a pass over all N samples, so it happens only when needed.
        if self._stale(scores):
            self.cache = self.form(scores, seen)
        self.invalid = False

    def write(self, writes: dict[str, tuple[Any, Tensor]], scores: Tensor) -> None:
        """Write the results of an update, after the table ``scores``; this cannot fail."""
        for name, (places, values) in writes.items():
            getattr(self, name)[places] = values
        self._table = None if scores.is_inference() else (scores, scores._version)

    def compare(self, scores: Tensor) -> None:
        """Notice that the table is another one, or that something else wrote to it."""
        if self._table is None:
            return
        table, version = self._table
        if table is not scores:
            # ``torch.func.functional_call`` replaces all buffers, the persistent sums too.
            self.forget()
        elif version != scores._version:
            self.invalidate()

    def forget(self) -> None:
        """Drop the cache, because the table is another one or was changed by something else."""
        self.cache = {}
        self._table = None

    def invalidate(self) -> None:
        """Recompute all sums before the next update, because the table's scores were changed."""
        self.forget()
        self.invalid = True

    def _stale(self, scores: Tensor) -> bool:
        if not self.cache:
            return True
        part = next(iter(self.cache.values()))
        # Tensors that were made in inference mode cannot be written to outside of it.
        unwritable = part.is_inference() and not torch.is_inference_mode_enabled()
        return unwritable or part.device != scores.device

    # Moving or casting the module, pickling it and loading a state all make the cache stale.
    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self.forget()
        return super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state |= {"cache": {}, "_table": None}
        return state

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.forget()
        super()._load_from_state_dict(*args, **kwargs)
