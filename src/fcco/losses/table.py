"""The table of scores: what every loss that remembers one score per sample has in common."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fcco.losses.batch import ScoreBatch, read_batch
from fcco.losses.criterion import Criterion
from fcco.losses.journal import Journal

__all__ = ["Change", "ScoreLoss"]


@dataclass(frozen=True)
class Change:
    """What a batch changed in the table, which holds the new scores already."""

    index: Tensor
    """(B,), the samples."""
    old: Tensor
    """(B, T), the scores they had."""
    known: Tensor
    """(B,), whether they had any."""
    journal: Journal
    """Through which running sums are written."""
    slopes: bool
    """Whether dF/dh is wanted."""
    count: int
    """How many samples were seen, these included."""
    writes: bool
    """Whether this stays: not in eval mode, nor without gradients."""


class ScoreLoss(Criterion, ABC):
    """F(h_1, ..., h_N) of the last known scores of all samples, one fresh batch at a time.

    ``forward`` writes the batch's scores into the table and returns a scalar with

        value F(table),    gradient (N/B) sum_{k in batch} dF/dh_k(table) grad h_k,

    whose mean over uniformly drawn batches is the gradient of F if all scores are fresh. N counts
    the samples seen so far, and F is that of these samples: 0 as long as it is not defined.

    In ``eval()`` and under ``no_grad`` nothing is written: the value is F with the batch's scores
    in place of the remembered ones.

    Under ``torch.distributed`` the batch is that of all ranks together.

    A subclass defines ``exact`` and ``_look``, and registers running sums, which stay float64,
    by ``_running``.

    Args:
        num_samples: N.
        num_tasks: T, scores of each sample.
    """

    _table = "scores"

    scores: Tensor
    """(N, T), the last score of every sample; 0 where none was seen."""
    seen: Tensor
    """(N,), which samples have a score."""
    num_seen: Tensor
    """How many have."""

    def __init__(self, num_samples: int, num_tasks: int = 1) -> None:
        super().__init__()
        dtype = torch.promote_types(torch.get_default_dtype(), torch.float32)
        self.register_buffer("scores", torch.zeros(num_samples, num_tasks, dtype=dtype))
        self.register_buffer("seen", torch.zeros(num_samples, dtype=torch.bool))
        self.register_buffer("num_seen", torch.zeros((), dtype=torch.int64))

    @abstractmethod
    def exact(self, scores: Tensor) -> Tensor:
        """F of all N scores, differentiable: for L-BFGS, or the objective at the end of a run."""

    @abstractmethod
    def _look(self, change: Change) -> tuple[Tensor, Tensor | None]:
        """F and, if wanted, dF/dh of the batch, (B, T); running sums brought up to date."""

    def forward(self, scores: Tensor, index: Tensor, weight: Tensor | None = None) -> Tensor:
        """The loss of a batch.

        Args:
            scores: (B,), (B, 1) or (B, T), the model's outputs.
            index: (B,), which samples of the training set these are.
            weight: (B,), 1 / (N probability) of each draw, if samples are not drawn uniformly;
                then a sample that comes twice counts twice.
        """
        batch = read_batch(
            scores.to(self.scores.device) if isinstance(scores, Tensor) else scores,
            index,
            weight,
            num_samples=len(self.scores),
            num_tasks=self.scores.shape[1],
            ranks=self._together(),
        )
        journal, write = Journal(), self._writes
        slopes = torch.is_grad_enabled() and batch.scores.requires_grad
        try:
            with torch.no_grad(), torch.autocast(self.scores.device.type, enabled=False):
                value, slope = self._fresh(batch, journal, slopes, write)
        except BaseException:
            journal.undo()
            raise
        if not write:
            journal.undo()
        h = batch.scores
        return value if slope is None else value + (slope * (h - h.detach())).sum()

    def refresh(self, scores: Tensor, index: Tensor | None = None) -> None:
        """Write scores without asking for a gradient, in eval mode and under ``no_grad`` too.

        A pass over the training set with the weights of today ends all staleness, for example
        before training goes on with a larger step size or with other weights.

        Args:
            scores: as in ``forward``.
            index: (B,), of which samples; None: of all, in their order.
        """
        everyone = torch.arange(len(self.scores), device=self.scores.device)
        training, self.training = self.training, True
        try:
            with torch.enable_grad():
                self.forward(scores.detach(), everyone if index is None else index)
        finally:
            self.training = training

    def _fresh(
        self, batch: ScoreBatch, journal: Journal, slopes: bool, write: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Write the batch; F, and the coefficients of the batch's scores."""
        index, known = batch.index, self.seen[batch.index]
        old, new = self.scores[index], batch.scores.detach().to(self.scores.dtype)
        count = self.num_seen + (~known).sum()
        journal.write(self.scores, index, new)
        journal.write(self.seen, index, torch.ones_like(known))
        journal.write(self.num_seen, ..., count)
        value, slope = self._look(Change(index, old, known, journal, slopes, int(count), write))
        value = value.to(batch.scores.dtype)
        finite = value.isfinite() & new.isfinite().all()
        if slope is not None:
            slope = (slope * (count * batch.share).unsqueeze(1)).to(value.dtype)
            finite &= slope.isfinite().all()
        if not finite:
            size = new.abs().amax(1)
            raise FloatingPointError(
                f"the loss is {value.item()}, or its gradient is not finite, with the scores of "
                f"this batch; that of sample {index[size.argmax()].item()} is the largest, "
                f"{size.max().item():.3g} in size: the step size may be too large"
            )
        return value, slope

    def _all(self, scores: Tensor) -> Tensor:
        """All scores as (N, T), checked, in at least float32."""
        everyone = torch.arange(len(self.scores), device=scores.device)
        size, tasks = self.scores.shape
        checked = read_batch(scores, everyone, None, num_samples=size, num_tasks=tasks)
        return checked.scores

    def _running(self, name: str, sums: Tensor) -> None:
        """Register running sums: saved with the table, in float64 whatever its precision."""
        self.register_buffer(name, sums.double())

    def _structure(self, **tensors: Tensor) -> None:
        """Register what follows from the labels: it moves along but is not saved."""
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor, persistent=False)

    def extra_repr(self) -> str:
        """The size of the table."""
        samples, tasks = self.scores.shape
        return f"num_samples={samples}" + (f", num_tasks={tasks}" if tasks > 1 else "")
