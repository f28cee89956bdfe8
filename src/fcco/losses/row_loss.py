"""Losses that keep a moving average u_i of the inner value of every block."""

from functools import partial

import torch
from torch import Tensor

from fcco.distributed import Share
from fcco.kernel.checks import Checks
from fcco.kernel.rows import rows_of
from fcco.kernel.step import Step, look, surprises, track
from fcco.kernel.table import BlockTable
from fcco.kernel.writes import commit
from fcco.losses.attach import Pending, Taken, attach, refuse_forward_mode, without_autograd
from fcco.losses.criterion import Criterion
from fcco.methods import SOX, Beta, Coefficients, Point, next_gain
from fcco.methods.gain import new_gain
from fcco.optim.arguments import check_problem
from fcco.problem import Objective, Probe

__all__ = ["RowLoss"]

_METHOD = SOX.updated()


class RowLoss(Criterion):
    """The mean of f_i(u_t^i) over the probed blocks i, with the gradient of SOX at u_t:

        u_t = (1 - beta) u_{t-1} + beta g(w_t; xi),    mean grad g_i(w_t; xi)^T grad f_i(u_t^i).

    A block that is met for the first time takes its fresh value. In ``eval()`` and under
    ``no_grad`` nothing is written; the value is the one that would be.

    A subclass forms a probe in ``forward`` and hands it to ``_take``.

    Args:
        objective: the f_i, and how large the table is.
        beta: weight of the new in u, in (0, 1], "auto" or a rule, as for
            ``fcco.optim.CompositionalOptimizer``; the attribute may be changed during training.
    """

    _table = "rows"

    rows: Tensor
    """(m, p), or (m, p + 1) with a log-scale: u of every block; 0 where it was never met."""
    visited: Tensor
    """(m,), which blocks were met."""
    gain: Tensor | None
    """What chooses beta, if it is "auto", see ``fcco.methods.next_gain``."""

    def __init__(self, objective: Objective, *, beta: Beta = "auto") -> None:
        check_problem(objective, _METHOD, None)
        super().__init__(objective)
        self.objective, self.beta = objective, beta
        self.register_buffer("gain", new_gain() if beta == "auto" else None)
        self._coefficients()
        shape = objective.num_blocks, rows_of(objective).width
        dtype = torch.promote_types(torch.get_default_dtype(), torch.float32)
        self.register_buffer("rows", torch.zeros(shape, dtype=dtype))
        self.register_buffer("visited", torch.zeros(shape[:1], dtype=torch.bool))
        self._pending = Pending()

    def _coefficients(self) -> Coefficients:
        """The gain of the next step: the one place where beta is chosen."""
        fixed = {"lr": 0.0, "weight_decay": 0.0, "alpha": 1.0, "gamma": 0.0}
        c = Coefficients.of_groups([{**fixed, "beta": self.beta}])
        if c.auto and self.gain is None:
            raise ValueError('beta="auto" needs a loss that was built with beta="auto"')
        return c if self.gain is None else c.chosen(self.gain)

    def _take(self, probe: Probe, share: float = 1.0) -> Tensor:
        """One step of the table; ``share`` is the weight of ``Probe.loss`` (on several ranks)."""
        refuse_forward_mode(getattr(probe, "values", None))
        taken = None
        if isinstance(probe, Probe) and _attached(probe):
            taken = self._pending.recomputed(probe.blocks, probe.values)
        taken = taken or self._step(probe)
        wide = torch.promote_types(probe.values.dtype, torch.float32)
        value = taken.value.to(wide)
        if taken.slopes is not None:
            value = attach(value, probe.values, taken.slopes, taken)
        loss = probe.loss
        if loss is None or not loss.requires_grad:
            return value
        return value + share * (loss - loss.detach()).to(wide)

    def _step(self, probe: Probe) -> Taken:
        """u_t, its mean of f and the slopes; written if all is well."""
        if not isinstance(probe, Probe):
            raise TypeError(f"probe must be a Probe, got {type(probe).__name__}")
        writes, wanted = self._writes, torch.is_grad_enabled() and _attached(probe)
        rows, table = rows_of(self.objective), self._as_table()
        checks, c = self._checks(probe), self._coefficients()
        s = Step(
            method=_METHOD,
            coefficients=c,
            number=1,
            coincide=(),
            rows=rows,
            table=table,
            dtype=table.dtype,
            num_blocks=table.num_blocks,
            ranks=1,
            checks=checks,
            single=True,
            weights={Point.CURRENT: 1.0} if wanted else {},
        )
        with without_autograd(checks.device):
            pull = look(s, Point.CURRENT, 0, probe)
            (part,) = s.parts
            u = track(s, part) if part.new is None else part.new
            values = rows.outer(u, part.ids)
            checks.distinct(part.ids)
            checks.rows(u, part.ids, "u")
            checks.rows(values, part.ids, "f(u)")
            _, seen = checks.read(0, self._surprises(s) if c.learns and writes else None)
            slopes = None if pull is None else pull.values
            taken = Taken((probe.blocks, probe.values.detach()), values.mean(), slopes)
            if writes:
                self._pending.add(taken)
                changes = table.writes(part.ids, part.old, u, step=1, beta=c.beta)
                if self.gain is not None and c.auto:
                    changes.append(partial(self.gain.copy_, next_gain(self.gain, seen)))
                commit(changes)
                self._remember(probe)
        return taken

    def _surprises(self, s: Step) -> Tensor:
        """What the gain learns from a step, (3,)."""
        return surprises(s)

    def _remember(self, probe: Probe) -> None:
        """Write what a subclass keeps beside the rows; nothing can fail any more."""

    def _checks(self, probe: Probe) -> Checks:
        values = probe.values
        device = values.device if isinstance(values, Tensor) else self.rows.device
        share = Share(self.objective.num_blocks)
        return Checks(share, self.objective.inner_dim, device)

    def _as_table(self) -> BlockTable:
        buffers = {"rows": self.rows, "visited": self.visited}
        share = Share(self.objective.num_blocks)
        return BlockTable(buffers, share, scaled=rows_of(self.objective).scaled)

    def read(self, blocks: Tensor) -> Tensor:
        """u of ``blocks``, a copy, (k, p); 0 where a block was never met."""
        return self._as_table().read(blocks)

    def extra_repr(self) -> str:
        """The size of the table, and beta."""
        return f"num_blocks={len(self.rows)}, beta={self.beta!r}"


def _attached(probe: Probe) -> bool:
    return isinstance(probe.values, Tensor) and probe.values.requires_grad
