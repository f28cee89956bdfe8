"""Losses that remember one score per sample, to compare a batch with the whole training set."""

from typing import Any, Self

import torch
from torch import Tensor

from fcco.kernel.interrupts import defer_interrupts
from fcco.losses.attach import Pending, Taken, attach, refuse_forward_mode, without_autograd
from fcco.losses.batch import ScoreBatch, read_batch
from fcco.losses.criterion import Criterion
from fcco.objectives import ScoreObjective
from fcco.objectives.running import Change, RunningSums, Update
from fcco.objectives.score import read_weight

__all__ = ["ScoreLoss"]


class ScoreLoss(Criterion):
    """A loss F of the scores of the whole training set, computed from one batch at a time.

    The loss remembers the last score h_i of every sample. ``forward`` writes the scores of the
    batch into this table and returns a scalar with

        value F(table),    gradient (N/B) sum_{k in batch} dF/dh_k(table) grad h_k.

    If all scores are fresh, the mean of this gradient over uniformly drawn batches is the gradient
    of F. Until all samples were seen, N and F are those of the samples seen so far. F is 0 as long
    as it is not defined for them, for example before the first event.

    In ``eval()`` and under ``no_grad`` nothing is written. The value is then F with the batch's
    scores in place of the remembered ones. A warning says that this is not a validation loss,
    because the labels are those of the training set.

    Under ``torch.distributed`` the batch is that of all ranks together.

    F and its slopes are computed from the whole table, or, if that takes longer, from running sums
    that the objective offers. Both agree up to rounding.

    Args:
        objective: a function of one score per sample (and task), built from labels.
        sample_weight: (N,), how much each sample counts in F, or None if all count alike. With
            weights there are no running sums, so every step computes F from the whole table.

    Examples:
        >>> from fcco.objectives import Cox
        >>> objective = Cox(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1, 0, 1]))
        >>> criterion = ScoreLoss(objective)
        >>> for sample in range(3):  # batches of one
        ...     score = torch.zeros(1, requires_grad=True)
        ...     loss = criterion(score, torch.tensor([sample]))
        >>> loss.detach()  # (log 3 + log 1) / 2
        tensor(0.5493)
    """

    _table = "scores"
    _validate_with = (
        "criterion.objective.on(labels of that set), which has exact(scores) and metric(scores)"
    )

    objective: ScoreObjective
    scores: Tensor
    """(N, T), the last score of every sample; 0 for a sample that was not seen yet."""
    seen: Tensor
    """(N,), whether each sample has a score."""
    num_seen: Tensor
    """Number of samples that have a score."""
    sample_weight: Tensor | None
    sums: RunningSums | None

    def __init__(self, objective: ScoreObjective, *, sample_weight: Any = None) -> None:
        if not isinstance(objective, ScoreObjective):
            raise TypeError(
                f"objective must be a function of scores (a ScoreObjective), got "
                f"{type(objective).__name__}: TableLoss takes any objective"
            )
        count = objective.num_samples
        importance = None if sample_weight is None else read_weight(sample_weight, count)
        super().__init__(objective, importance)
        # The objective must not become a submodule. The threshold of CVaR, which only an optimizer
        # learns, would then be a parameter of the loss.
        self.__dict__["objective"] = objective
        objective.lock()
        shape = objective.num_samples, objective.num_tasks
        dtype = torch.promote_types(torch.get_default_dtype(), torch.float32)
        self.register_buffer("scores", torch.zeros(shape, dtype=dtype))
        self.register_buffer("seen", torch.zeros(shape[0], dtype=torch.bool))
        self.register_buffer("num_seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("sample_weight", importance, persistent=False)
        # Running sums assume that all samples count alike.
        self.sums = objective.running_sums() if importance is None else None
        self._pending = Pending()

    def exact(self, scores: Tensor) -> Tensor:
        """Return F of all N scores, which is the value to monitor; it is differentiable."""
        return self.objective.exact(scores, self.sample_weight)

    def forward(self, scores: Tensor, index: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the loss of a batch.

        Args:
            scores: (B,), (B, 1) or (B, T), the model's outputs.
            index: (B,), the positions of these samples in the training set.
            weight: (B,), the weight 1 / (N probability) of each draw, if samples are not drawn
                uniformly. A sample that occurs twice then counts twice.
        """
        refuse_forward_mode(scores)
        batch = read_batch(
            scores.to(self.scores.device) if isinstance(scores, Tensor) else scores,
            index,
            weight,
            num_samples=len(self.scores),
            num_tasks=self.scores.shape[1],
            ranks=self._together(),
            made_of=self.fingerprint,
        )
        taken = self._pending.recomputed(batch.index, batch.scores)
        if taken is None:
            taken = self._step(batch)
        if taken.slopes is None:
            return taken.value
        return attach(taken.value, batch.scores, taken.slopes, taken)

    def _step(self, batch: ScoreBatch) -> Taken:
        """Compare a batch with the table, and write it after all checks."""
        change = Change(
            batch.index,
            batch.scores.detach().to(self.scores.dtype),
            self.scores,
            self.seen,
            int(self.num_seen + (~self.seen[batch.index]).sum()),
            slopes=torch.is_grad_enabled() and batch.scores.requires_grad,
            writes=self._writes,
        )
        try:
            with without_autograd(self.scores.device):
                update = self._updated(change)
                value, slope = update.value.to(batch.scores.dtype), update.slope
                if slope is not None:
                    # (N/B) dF/dh_k: N counts the samples seen so far, and ``share`` is 1/B.
                    slope = (slope * (change.count * batch.share)).to(value.dtype)
                self._check(change, value, slope)
                taken = Taken((batch.index, batch.scores.detach()), value, slope)
                if change.writes:
                    with defer_interrupts():
                        self.scores[change.index] = change.scores
                        self.seen[change.index] = True
                        self.num_seen.fill_(change.count)
                        if self.sums is not None:
                            self.sums.write(update.writes, self.scores)
                        self._pending.add(taken)
        # An update may have changed the cache before the error, so it is formed again.
        except BaseException:
            if self.sums is not None:
                self.sums.forget()
            raise
        return taken

    def _apply(self, *given: Any, **named: Any) -> Self:
        """Move the module; if the scores are rounded, their running sums are recomputed."""
        before = self.scores.dtype
        super()._apply(*given, **named)
        if self.sums is not None and self.scores.dtype != before:
            self.sums.invalidate()
        return self

    def _save_to_state_dict(self, *args: Any) -> None:
        """Save the table, with running sums that match it also after its scores were rounded."""
        if self.sums is not None and not self.scores.is_meta:
            self.sums.compare(self.scores)
            if self.sums.invalid:
                with torch.no_grad():
                    self.sums.prepare(self.scores, self.seen)
        super()._save_to_state_dict(*args)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load the table; if its scores are rounded on the way, their sums are recomputed."""
        found = state.get(f"{prefix}scores")
        super()._load_from_state_dict(state, prefix, *args)
        if self.sums is not None and isinstance(found, Tensor):
            self.sums.invalid = found.dtype != self.scores.dtype

    def refresh(self, scores: Tensor, index: Tensor | None = None) -> None:
        """Write scores into the table without a gradient, in eval mode and under ``no_grad`` too.

        After a pass over the training set with the current weights, no score is stale. This is
        useful before training continues with a larger step size or with other weights. Under
        ``torch.distributed`` all ranks must call it.

        Args:
            scores: (B,), (B, 1) or (B, T), as in ``forward``.
            index: (B,), the samples of these scores, or None for all samples in their order.
        """
        # A refresh is a step without slopes: scores are detached, and the mode is set to training.
        everyone = torch.arange(len(self.scores), device=self.scores.device)
        training, self.training = self.training, True
        try:
            with torch.enable_grad():
                given = scores.detach() if isinstance(scores, Tensor) else scores
                self.forward(given, everyone if index is None else index)
        finally:
            self.training = training

    def _updated(self, change: Change) -> Update:
        """Return F and dF/dh of the batch, by running sums if possible, else from the table."""
        if self.sums is not None:
            self.sums.compare(self.scores)
            if change.writes:
                self.sums.prepare(self.scores, self.seen)
            update = self.sums.update(change)
            if update is not None:
                return update
        weight = self.sample_weight
        if not change.all_seen:
            # A weight of 0 means that a sample is absent, so F is that of the samples seen so far.
            seen = change.seen.double()
            weight = seen if weight is None else seen * weight
        with torch.enable_grad():
            h = change.table.double().requires_grad_(change.slopes)
            value = self.objective._value(h, weight)
        if not change.slopes:
            return Update(value.detach(), None)
        (slope,) = torch.autograd.grad(value, h)
        return Update(value.detach(), slope[change.index])

    def _check(self, change: Change, value: Tensor, slope: Tensor | None) -> None:
        finite = value.isfinite() if slope is None else value.isfinite() & slope.isfinite().all()
        # A float64 score that is finite may be infinite in a float32 table.
        narrowed = change.scores.dtype != value.dtype and not change.scores.isfinite().all()
        if not finite or narrowed:
            size = change.scores.abs().amax(1)
            largest = (
                f"that of sample {change.index[size.argmax()].item()} is the largest, "
                f"{size.max().item():.3g} in size"
                if len(size)
                else "it is empty, so the scores of earlier batches are too large"
            )
            raise FloatingPointError(
                f"the loss is {value.item()}, or its gradient is not finite, with the scores of "
                f"this batch; {largest}: the step size may be too large"
            )

    def extra_repr(self) -> str:
        """Return the size of the table."""
        samples, tasks = self.scores.shape
        return f"num_samples={samples}" + (f", num_tasks={tasks}" if tasks > 1 else "")
