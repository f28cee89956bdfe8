"""The optimizer: it steps, estimates and takes snapshots."""

import warnings
from collections.abc import Iterable
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from fcco.methods.coefficients import Coefficients, Gamma
from fcco.distributed import Ranks
from fcco.methods import Method
from fcco.problem.objective import Objective
from fcco.optim.agreement import together
from fcco.optim.block_optimizer import BlockOptimizer
from fcco.optim.estimation import Estimation, Proposal
from fcco.optim.exact import ExactPass
from fcco.optim.hyper import check_problem, read_coefficients
from fcco.optim.observation import Observation
from fcco.kernel.oracle import Oracle, as_closures
from fcco.methods.point import Point
from fcco.problem.probe import Closures
from fcco.kernel.rows import rows_of
from fcco.kernel.safeguard import ChangeBound
from fcco.distributed.sharded import local, written
from fcco.kernel.storage import Place
from fcco.updates import Plain, Update

__all__ = ["CompositionalOptimizer"]


class CompositionalOptimizer(BlockOptimizer):
    """Any method with any step rule; ``SOX``, ``MSVRM``, ``FreshPair`` and ``BSGD`` choose one.

    Args:
        params: parameters or parameter groups; lr and weight_decay may differ between groups.
        objective: the problem, see ``Objective``.
        method: two rows of weights, see ``fcco.methods``.
        update: the step rule, see ``fcco.updates``.
        lr: step size.
        alpha: weight of the new in z, in (0, 1].
        beta: weight of the new in u, in (0, 1].
        gamma: strength of the error correction: "theory", "storm", "age" or a number.
        snapshot_every: steps between exact passes (version 3); None: whenever you call
            ``snapshot``.
        buffers: ``model.buffers()``, needed when a forward pass changes them (BatchNorm).
        initial: the table to start from, (m, p) or a number for every row; None: each row takes
            its fresh value at its first visit.
        weight_decay: decoupled, as in AdamW.
        safeguard: bounds the gradient's change at large steps, see ``ChangeBound``; None: off.
        table_on: where the table lies: a device, or a directory (``pathlib.Path``) for a
            memory-mapped file, if there are more blocks than memory; None: with the parameters.
        ranks: the processes that share the blocks; None: all of ``torch.distributed``, if it is
            set up.

    Examples:
        >>> from fcco.methods import MSVRM_V2
        >>> from fcco.objectives import MultiTaskAUC
        >>> model = torch.nn.Linear(4, 10)
        >>> objective = MultiTaskAUC(num_tasks=10)
        >>> opt = CompositionalOptimizer(
        ...     model.parameters(), objective, MSVRM_V2, lr=0.1, alpha=0.5, beta=0.5, gamma="age")
        >>> opt.table.read(torch.tensor([0])).shape
        torch.Size([1, 4])
    """

    parts = BlockOptimizer.parts | {"snapshot_every", "safeguard", "_warned"}

    def __init__(
        self,
        params: ParamsT,
        objective: Objective,
        method: Method,
        update: Update | None = None,
        *,
        lr: float,
        alpha: float = 1.0,
        beta: float = 1.0,
        gamma: Gamma = 0.0,
        snapshot_every: int | None = None,
        buffers: Iterable[Tensor] = (),
        initial: Tensor | float | None = None,
        weight_decay: float = 0.0,
        safeguard: ChangeBound | None = None,
        table_on: Place = None,
        ranks: Ranks | None = None,
    ) -> None:
        check_problem(objective, method, snapshot_every)
        self.snapshot_every = snapshot_every
        self.safeguard = safeguard
        self._warned = False
        super().__init__(
            params,
            {
                "lr": lr,
                "weight_decay": weight_decay,
                "alpha": alpha,
                "beta": beta,
                "gamma": gamma,
            },
            objective=objective,
            method=method,
            update=Plain() if update is None else update,
            buffers=buffers,
            initial=initial,
            table_on=table_on,
            ranks=ranks,
        )
        self._coefficients()

    @property
    def snapshot_due(self) -> bool:
        """Whether ``snapshot`` must be called before the next step."""
        if not self.method.anchored:
            return False
        progress = self._progress
        if progress.snapshot_step == 0:
            return True
        age = progress.step + 1 - progress.snapshot_step
        return self.snapshot_every is not None and age >= self.snapshot_every

    @property
    def at_snapshot(self) -> bool:
        """Whether the last snapshot was taken where the model stands now."""
        return self._progress.at_snapshot

    # The verbs ----------------------------------------------------------------------------------

    @torch.no_grad()
    def step(self, closure: Closures) -> Tensor:  # type: ignore[override]  # a Probe, not a loss
        """Advance u and z with one sample, then move w; returns the mean of f_i(u_t^i) probed.

        Args:
            closure: one closure, or several (micro-batches of disjoint blocks).
        """
        params, states, proposal = self._advance(closure)
        directions = self.update.directions([state["z"] for state in states], states)
        moves = zip(map(local, params), map(local, directions), proposal.received, strict=True)
        for group in self.param_groups:
            trainable = sum(p.requires_grad for p in group["params"])
            if not trainable:
                continue
            parts, along, received = zip(*islice(moves, trainable), strict=True)
            decay = [part for part, got in zip(parts, received, strict=True) if got]
            if decay and group["weight_decay"] != 0:
                torch._foreach_mul_(decay, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(parts, along, alpha=-group["lr"])
        written(params)
        return proposal.objective

    @torch.no_grad()
    def estimate(self, closure: Closures) -> Tensor:
        """Advance u and z, copy z into ``.grad`` and leave w alone, for any torch optimizer.

        Args:
            closure: as for ``step``.
        """
        params, states, proposal = self._advance(closure)
        for p, state in zip(params, states, strict=True):
            p.grad = state["z"].to(p.dtype, copy=True)
        return proposal.objective

    @torch.no_grad()
    def snapshot(self, closures: Closures) -> None:
        """One exact pass at w_t (version 3): g_i(w_t) for all i, and the full gradient.

        The first one also fills the table, unless ``initial`` was given. Buffers and RNG are left
        as they were. With BatchNorm, "exact" means over chunks normalised by their own
        statistics: use chunks of the training size.

        Args:
            closures: the chunks. Together they cover every block; a block met in several chunks
                is averaged by ``Probe.samples``. With several ranks each brings its part of the
                chunks, equally many.
        """
        if not self.method.anchored:
            raise ValueError(f"{self.method.name} has no snapshots; version 3 has")
        params, states = self._prepare()
        progress, table = self._progress, self.table
        first = progress.snapshot_step == 0
        ranks, m, device = self.ranks, self.objective.num_blocks, self._host.device
        fill = first and table is not None and not table.buffers["visited"].all()
        fill = ranks.any(fill, device)
        format = rows_of(self.objective)
        rows = totals = None
        if table is not None and not fill:
            rows = ranks.whole(table.whole().to(device), m)
        if table is not None and not first:
            totals = ranks.whole(table.buffers["samples"].to(device), m)
        exact_pass = ExactPass(
            self.objective,
            format,
            together(ranks, device, lambda: as_closures(closures)),
            ranks=ranks,
            rows=rows,
            project=table is not None,
            totals=totals,
            dtype=self._dtype,
            device=device,
        )
        with Oracle(params, self._buffers, self.ranks.reduction, rewind=True) as oracle:
            exact = exact_pass.run(oracle, [torch.zeros_like(s["z"]) for s in states])
        if table is not None:
            mine = slice(table.share.start, table.share.stop)
            inner = exact.inner[mine]
            if fill:
                ids = torch.arange(table.share.start, table.share.stop, device=device)
                table.fill(format.project(inner, ids), step=progress.step)
            table.keep_snapshot(inner, exact.samples[mine])
        for state, anchor in zip(states, exact.gradients, strict=True):
            state["anchor"] = anchor
        self._commit(params, states, Point.SNAPSHOT)
        progress.count(exact.value_queries, exact.gradient_queries)
        progress.snapshot_step = progress.step + 1
        progress.at_snapshot = True

    def restart(self) -> None:
        """Begin a stage from another iterate: w_0 = w_1 and u_{-1} = u_0; u and z stay.

        The corrections since the previous point then vanish in the next step. A snapshot taken
        before the parameters were set to the new iterate is kept, as the older point it is.
        """
        self._progress.moved = False
        self._progress.at_snapshot = False

    # How a step is made -------------------------------------------------------------------------

    def _advance(self, closure: Closures) -> tuple[list[Tensor], list[dict[str, Any]], Proposal]:
        """Compute u_t and z_t, and commit them once every check has passed."""
        params, states = self._prepare()
        closures = as_closures(closure)
        coefficients = self._coefficients()
        progress, table = self._progress, self.table
        step = progress.step + 1
        if self.snapshot_due:
            what = "is due" if progress.snapshot_step else "was never taken"
            raise ValueError(f"a snapshot {what} before step {step}: call snapshot first")
        coincide = set() if progress.moved else {Point.PREVIOUS}
        if progress.at_snapshot:
            coincide.add(Point.SNAPSHOT)
        seen = Observation(
            self.objective,
            self.method,
            table,
            self._share,
            dtype=self._dtype,
            device=self._host.device,
        )
        estimation = Estimation(
            seen,
            coefficients,
            step=step,
            coincide=coincide,
            safeguard=self.safeguard,
            ranks=self.ranks,
        )
        with Oracle(params, self._buffers, self.ranks.reduction) as oracle:
            proposal = estimation.run(oracle, closures, params, states)
        if table is not None:
            table.write(
                proposal.blocks, proposal.old, proposal.rows, step=step, beta=coefficients.beta
            )
        proposal.write_z(states)
        for p in params:
            p.grad = None
        self._commit(params, states, Point.PREVIOUS)
        progress.stepped(proposal.values, proposal.gradients)
        if step == 1 and self.ranks.size > 1 and not self.ranks.reduction.modules:
            warnings.warn(
                f"{self.ranks.size} ranks share the blocks, but no module of DDP or FSDP2 was "
                "called that averages their gradients",
                stacklevel=4,
            )
        return params, states, proposal

    def _coefficients(self) -> Coefficients:
        ages = self.table is not None and "last_visit" in self.table.buffers
        coefficients = read_coefficients(self.param_groups, ages=ages)
        if coefficients.gamma == "theory" and coefficients.beta > 0.5 and not self._warned:
            self._warned = True
            warnings.warn(
                f'gamma="theory" is analysed for beta <= 1/2 only, and beta={coefficients.beta}',
                stacklevel=3,
            )
        return coefficients
