"""Losses that keep a moving average u_i of the inner value of every block.

A call takes one step of the table:

1. Observe: check the probe, and read the fresh rows.
2. Track: compute u_t = (1 - beta) u_{t-1} + beta g(w_t; xi). A new row takes its fresh value.
3. Check: raise an error if anything is wrong, before anything has changed.
4. Write u_t, and return the mean of f(u_t) with the slopes of f at u_t as its gradient.

A forward pass that activation checkpointing computes again takes no second step.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fcco.distributed import Share
from fcco.kernel.checks import Checks
from fcco.kernel.interrupts import defer_interrupts
from fcco.kernel.rows import Rows
from fcco.kernel.table import Table
from fcco.losses.accumulation import close_at_optimizer_step
from fcco.losses.attach import Pending, Taken, attach, refuse_forward_mode, without_autograd
from fcco.losses.criterion import Criterion
from fcco.losses.merge import merge
from fcco.methods import SOX, Beta, Gain, Point, Scalar, Weights, next_gain, read_gain
from fcco.optim.arguments import check_problem
from fcco.problem import Objective, Probe

__all__ = ["Observation", "RowLoss"]


@dataclass(frozen=True)
class Observation:
    """The probed rows: their old values, and the fresh ones of the batch."""

    blocks: Tensor
    old: Tensor
    """(k, width), u_{t-1}, or the fresh row for a new block."""
    unvisited: Tensor
    """(k, 1), whether a row is visited for the first time."""
    fresh: Tensor
    """(k, width), g(w_t; xi)."""
    noise: Tensor | None
    """(k, p), the standard errors of the fresh rows, if they are known."""


@dataclass(frozen=True)
class _Change:
    """A step of the table that was checked and can be written."""

    seen: Observation
    new: Tensor
    """(k, width), u_t."""
    gain: Gain
    lesson: list[float]
    """The sums from which the next gain is chosen, see ``fcco.methods.next_gain``."""
    probe: Probe


class RowLoss(Criterion):
    """Base class of losses with one tracked row u_i per block, which take the steps of SOX.

        u_t = (1 - beta) u_{t-1} + beta g(w_t; xi).

    The value is the mean of f_i(u_t^i) over the probed blocks i, and the gradient is the mean of
    grad g_i(w_t; xi)^T grad f_i(u_t^i). A block that is visited for the first time takes its fresh
    value. In ``eval()`` and under ``no_grad`` nothing is written, and the value is the one that the
    step would have.

    With ``criterion.accumulate = True``, all forward passes until the next step of a torch
    optimizer are one step of the table. Slopes are then taken at the rows before the first of these
    passes, or at the fresh value of a new row. The mean values of all passes are written after the
    step of the optimizer. The gradients of micro-batches add up to that of the joint batch under
    two conditions. They must probe equally many blocks, and a block that several of them probe must
    have equally many samples in each. Losses that compare the samples of a batch with each other
    (contrastive, NCA) have other fresh values in smaller micro-batches, so theirs do not.

    A subclass forms a probe in ``forward`` and passes it to ``_take``.

    Args:
        objective: the problem, which defines f_i and the size of the table.
        beta: the weight of the fresh value in u, in (0, 1], "auto" or a rule, as for
            ``fcco.optim.CompositionalOptimizer``. The attribute may be changed during training.
    """

    _table = "table.rows"

    table: Table
    """u of every block; ``table.read(blocks)`` is 0 for a block that was never visited."""

    accumulate: bool = False
    """Whether gradients are accumulated over several batches. Set it only between two steps."""

    def __init__(self, objective: Objective, *, beta: Beta = "auto") -> None:
        check_problem(objective, SOX, None)
        super().__init__(objective)
        if type(objective).__module__.startswith("fcco."):
            objective.lock()  # of another objective, its author knows what is a setting
        self._least = torch.promote_types(objective.row_dtype, torch.float32)
        self.objective = objective
        self.beta = beta
        self._rows = Rows(objective)
        self.table = Table(
            Share(objective.num_blocks),
            self._rows.width,
            scaled=self._rows.scaled,
            dtype=torch.promote_types(torch.get_default_dtype(), self._least),
            gain=beta == "auto",
        )
        self._choose_gain()
        self._pending = Pending()
        self._window: _Change | None = None

    def _choose_gain(self) -> Gain:
        """Return the gain of the next step."""
        gain = read_gain(self.beta, self.table.gain)
        if gain.auto and self.table.gain is None:
            raise ValueError('beta="auto" needs a loss that was built with beta="auto"')
        return gain

    def _take(self, probe: Probe, share: float = 1.0) -> Tensor:
        """Return the loss of a probe, and take a step unless a checkpoint recomputes one.

        Args:
            probe: the probe of the batch of all ranks.
            share: the weight of ``Probe.loss``.
        """
        if not isinstance(probe, Probe):
            raise TypeError(f"probe must be a Probe, got {type(probe).__name__}")
        refuse_forward_mode(probe.values)
        taken = None
        if _is_attached(probe):
            taken = self._pending.recomputed(probe.blocks, probe.values)
        taken = taken or self._step(probe)
        wide = torch.promote_types(probe.values.dtype, torch.float32)
        value = taken.value.to(wide)
        if taken.slopes is not None:
            value = attach(value, probe.values, taken.slopes, taken)
        loss = probe.loss
        if loss is None or not loss.requires_grad:
            return value
        # The difference is 0, so an ordinary loss adds its gradient but not its value.
        return value + share * (loss - loss.detach()).to(wide)

    def _step(self, probe: Probe) -> Taken:
        """Observe, track, check and write; return the value and its slopes."""
        writes = self._writes
        wants_slopes = torch.is_grad_enabled() and _is_attached(probe)
        checks, rows, gain = self._checks(probe), self._rows, self._choose_gain()
        with without_autograd(checks.device):
            ids = checks.probe(Point.CURRENT, 0, probe)
            checks.distinct(ids)
            # What identifies this step if activation checkpointing repeats the forward pass.
            made_of = probe.blocks, probe.values.detach()
            own = seen = self._observe(probe, ids)
            in_window = writes and self.accumulate
            u = new = self._track(own, gain)
            joint = probe
            if in_window and self._window is not None:
                # Recompute the step of the whole window from the rows before it. The value and
                # slopes of this call remain those of its own micro-batch.
                joint = self._join(self._window.probe, replace(probe, blocks=ids))
                seen = self._observe(joint, joint.blocks)
                new = self._track(seen, gain)
            values = rows.outer(u, ids)
            checks.rows(u, ids, "u")
            checks.rows(new, seen.blocks, "u")
            checks.rows(values, ids, "f(u)")
            slopes = None
            if wants_slopes:
                # Within a window all micro-batches must use the same slopes, those at the old rows.
                slopes = rows.slopes(own.old if in_window else u, own.fresh, ids) / len(ids)
                checks.rows(slopes, ids, "slope of f (feasible?)")
            learns = gain.learns and writes
            _, lesson = checks.read(0, self._sum_surprises(seen) if learns else None)
            taken = Taken(made_of, values.mean(), slopes)
            if writes:
                change = _Change(seen, new, gain, lesson, _detach(joint))
                with defer_interrupts():
                    self._pending.add(taken)
                    if in_window:
                        self._window = change
                        close_at_optimizer_step(self)
                    else:
                        self._write(change)
        return taken

    def _observe(self, probe: Probe, blocks: Tensor) -> Observation:
        """Return the old values of the probed rows, and what the probe reports of them."""
        fresh = self._rows.read(probe, self.table.rows.dtype)
        before = self.table.recall(blocks)
        # A new row starts at its fresh value, projected into the domain of f.
        first = self._rows.project(fresh, blocks)
        old = torch.where(before.unvisited, first, before.old)
        noise = None if probe.noise is None else probe.noise.detach().to(fresh.dtype)
        return Observation(blocks, old, before.unvisited, fresh, noise)

    def _track(self, seen: Observation, gain: Gain) -> Tensor:
        """Return u_t = (1 - beta) u_{t-1} + beta g(w_t; xi)."""
        rows = self._rows
        keep: Scalar = 1 - gain.beta
        beta: Scalar = gain.beta
        if gain.rule is not None:
            # A rule chooses by the logarithm of a row, which exists for scaled rows of any size.
            keep, beta = gain.shares(rows.logs(seen.old), rows.logs(seen.fresh))
        u = rows.advance(seen.old, keep, Weights(current=beta), seen.fresh)
        return rows.project(torch.where(seen.unvisited, seen.old, u), seen.blocks)

    def _sum_surprises(self, seen: Observation) -> Tensor | None:
        """Return the sums from which the gain is chosen, (3,), or None if there are none."""
        if seen.noise is None:
            return None
        return self._rows.sum_surprises(
            seen.old, seen.fresh, seen.noise, seen.blocks, seen.unvisited
        )

    def _write(self, change: _Change) -> None:
        """Write a step that was checked."""
        seen, gain = change.seen, change.gain
        memory = self.table.gain
        if memory is not None:
            memory = next_gain(memory, change.lesson) if gain.auto else None
        # The table of a loss stores no ages, so the number of the step does not matter.
        self.table.write(seen.blocks, seen.old, change.new, step=1, beta=gain.beta, gain=memory)
        self._remember(change.probe)

    def _remember(self, probe: Probe) -> None:
        """Write what a subclass stores beside the table; this must not fail."""

    @torch.no_grad()
    def close_window(self) -> None:
        """Write the accumulated step; with ``accumulate=True`` an optimizer's step calls this."""
        if self._window is not None:
            with defer_interrupts():
                self._write(self._window)
                self._window = None

    def _join(self, first: Probe, second: Probe) -> Probe:
        """Return the joint probe of two micro-batches, detached."""

        def cat(name: str, missing: float) -> Tensor | None:
            parts = [getattr(first, name), getattr(second, name)]
            if all(part is None for part in parts):
                return None
            for k, probe in enumerate((first, second)):
                if parts[k] is None:
                    shape = probe.values if name == "noise" else probe.values[:, 0]
                    parts[k] = torch.full_like(shape, missing)
            return torch.cat(parts).detach()

        joint = Probe(
            torch.cat([first.blocks, second.blocks]),
            torch.cat([first.values, second.values]).detach(),
            torch.cat([first.samples_per_row(), second.samples_per_row()]),
            noise=cat("noise", torch.nan),
            log_scale=cat("log_scale", 0.0),
        )
        return merge(joint, self._rows.scaled)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load a table, and drop an open window, which began at the rows of the old one."""
        if f"{prefix}{self._table}" in state and self._find_flaw(state, prefix) is None:
            self._window = None
        super()._load_from_state_dict(state, prefix, *args)

    def __getstate__(self) -> dict[str, Any]:
        """Drop an open window, because no optimizer's step would close that of a copy."""
        return self.__dict__ | {"_window": None}

    def _checks(self, probe: Probe) -> Checks:
        values = probe.values
        device = values.device if isinstance(values, Tensor) else self.table.rows.device
        return Checks(self.table.share, self.objective.inner_dim, device)

    def read(self, blocks: Tensor) -> Tensor:
        """Return a copy of u of ``blocks``, (k, p); a block that was never visited has 0."""
        return self.table.read(blocks)

    def extra_repr(self) -> str:
        """Return the size of the table, and beta."""
        return f"num_blocks={self.table.num_blocks}, beta={self.beta!r}"


def _is_attached(probe: Probe) -> bool:
    return isinstance(probe.values, Tensor) and probe.values.requires_grad


def _detach(probe: Probe) -> Probe:
    return replace(probe, values=probe.values.detach(), pair=None, loss=None)
