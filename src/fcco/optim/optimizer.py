"""The optimizer: it steps, estimates and takes snapshots."""

import warnings
from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fcco.distributed import Ranks
from fcco.distributed.sharded import is_sharded, likes, locals_of, written
from fcco.kernel.agreement import agree
from fcco.kernel.checks import Checks
from fcco.kernel.exact import ExactPass
from fcco.kernel.gradients import GradientSum
from fcco.kernel.oracle import Oracle, as_closures
from fcco.kernel.rows import rows_of
from fcco.kernel.safeguard import ChangeBound
from fcco.kernel.step import Step, take
from fcco.kernel.storage import Place
from fcco.methods import Coefficients, Gamma, Method, Point, SlopeAt
from fcco.optim.arguments import check_problem
from fcco.optim.block_optimizer import BlockOptimizer, Params
from fcco.optim.caller import users_line
from fcco.optim.memory import ANCHOR_STEP, SHARED, follow, fresh_state
from fcco.problem import Closures, Objective
from fcco.updates import Plain, Update

__all__ = ["CompositionalOptimizer"]


class _Live(NamedTuple):
    """The trainable parameters, and what is remembered of each, at the start of a step."""

    params: list[Tensor]
    states: list[dict[str, Any]]
    z: list[Tensor]
    """z_{t-1}; of a sharded parameter the local part."""
    sizes: list[int]
    """How many parameters each group has."""


class CompositionalOptimizer(BlockOptimizer):
    """Any method with any step rule; ``SOX``, ``MSVRM``, ``FreshPair`` and ``BSGD`` choose one.

    Args:
        params: a module, which also brings its buffers; or parameters or parameter groups. lr and
            weight_decay may differ between groups.
        objective: the problem, see ``Objective``.
        method: two rows of weights, see ``fcco.methods``.
        update: the step rule, see ``fcco.updates``.
        lr: step size.
        alpha: weight of the new in z, in (0, 1].
        beta: weight of the new in u, in (0, 1].
        gamma: strength of the error correction: "theory", "storm", "age" or a number; None: "age"
            for a method that it corrects.
        snapshot_every: steps between exact passes (version 3); None: whenever you call
            ``snapshot``.
        buffers: ``model.buffers()``, where parameters are given and a forward pass changes them
            (BatchNorm).
        initial: the table to start from, (m, p) or a number for every row; None: each row takes
            its fresh value at its first visit.
        weight_decay: decoupled, as in AdamW.
        safeguard: bounds the gradient's change at large steps, see ``ChangeBound``; None: off.
        table_on: where the table lies: a device, or a directory for a memory-mapped file, if there
            are more blocks than memory; None: with the parameters.
        ranks: the processes that share the blocks; None: all of ``torch.distributed``, if it is
            set up.

    Examples:
        >>> from fcco.methods import MSVRM_V2
        >>> from fcco.objectives import MultiTaskAUC
        >>> model = torch.nn.Linear(4, 10)
        >>> objective = MultiTaskAUC(num_tasks=10)
        >>> opt = CompositionalOptimizer(
        ...     model, objective, MSVRM_V2, lr=0.1)
        >>> opt.table.read(torch.tensor([0])).shape
        torch.Size([1, 4])
    """

    parts = BlockOptimizer.parts | {"snapshot_every", "safeguard", "_warned"}

    def __init__(
        self,
        params: Params,
        objective: Objective,
        method: Method,
        update: Update | None = None,
        *,
        lr: float,
        alpha: float = 0.5,
        beta: float = 0.5,
        gamma: Gamma | None = None,
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
                "gamma": ("age" if method.corrected else 0.0) if gamma is None else gamma,
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
        now = self._counters.position()
        if now.snapshot_step == 0:
            return True
        age = now.step + 1 - now.snapshot_step
        if self.snapshot_every is not None and age >= self.snapshot_every:
            return True
        # A parameter that was added, or thawed, since the last snapshot has no anchor of it.
        return not self._counters.covers(
            self.state.get(p, {}).get(ANCHOR_STEP) for p in self._all_params() if p.requires_grad
        )

    @property
    def at_snapshot(self) -> bool:
        """Whether the last snapshot was taken where the model stands now."""
        return self._counters.position().at_snapshot

    # The verbs ----------------------------------------------------------------------------------

    @torch.no_grad()
    def step(self, closure: Closures) -> Tensor:  # type: ignore[override]  # a Probe, not a loss
        """Advance u and z with one sample, then move w; returns the mean of f_i(u_t^i) probed.

        Args:
            closure: one closure, or several (micro-batches of disjoint blocks).
        """
        live, _, along, received, value = self._advance(closure, self.update)
        moves = zip(locals_of(live.params), along, received, strict=True)
        for group, size in zip(self.param_groups, live.sizes, strict=True):
            if not size:
                continue
            params, directions, got = zip(*islice(moves, size), strict=True)
            if group["weight_decay"] != 0 and any(got):
                decay = [p for p, moved in zip(params, got, strict=True) if moved]
                torch._foreach_mul_(decay, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(params, directions, alpha=-group["lr"])
        written(live.params)
        return value

    @torch.no_grad()
    def estimate(self, closure: Closures) -> Tensor:
        """Advance u and z, copy z into ``.grad`` and leave w alone, for any torch optimizer.

        Args:
            closure: as for ``step``.
        """
        live, z, _, _, value = self._advance(closure, Plain())
        for p, new in zip(live.params, z, strict=True):
            p.grad = new.to(p.dtype, copy=True)
        return value

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
        live = self._prepare()
        now, table, ranks = self._counters.position(), self.table, self.ranks
        first = now.snapshot_step == 0
        m, device = self.objective.num_blocks, self._host.device
        fill = first and table is not None and not table.buffers["visited"].all()
        fill = ranks.any(fill, device)
        rows = totals = None
        if table is not None and not fill:
            rows = ranks.whole(table.whole().to(device), m)
        if table is not None and not first:
            totals = ranks.whole(table.buffers["samples"].to(device), m)
        chunks = ranks.together(device, lambda: as_closures(closures))
        exact_pass = ExactPass(
            self.objective,
            self._rows,
            len(chunks),
            ranks=ranks,
            rows=rows,
            project=table is not None,
            totals=totals,
            dtype=self._dtype,
            device=device,
        )
        gradients = GradientSum(live.params, live.z, apart=True)
        with Oracle(
            live.params, chunks, self._buffers, ranks.reduction, gradients=gradients, rewind=True
        ) as oracle:
            exact = exact_pass.run(oracle)
        if table is not None:
            mine = slice(table.share.start, table.share.stop)
            inner = exact.inner[mine]
            if fill:
                ids = torch.arange(table.share.start, table.share.stop, device=device)
                table.fill(self._rows.project(inner, ids), step=now.step)
            table.keep_snapshot(inner, exact.samples[mine])
        anchors = likes(exact.gradients, live.params)
        for state, anchor in zip(live.states, anchors, strict=True):
            state["anchor"] = anchor
            state[ANCHOR_STEP].fill_(now.step + 1)
        self._keep(live, Point.SNAPSHOT)
        self._counters.snapshot_taken(values=exact.value_queries, gradients=exact.gradient_queries)

    def restart(self) -> None:
        """Begin a stage from another iterate: w_0 = w_1 and u_{-1} = u_0; u and z stay.

        The corrections since the previous point then vanish in the next step. A snapshot taken
        before the parameters were set to the new iterate is kept, as the older point it is.
        """
        self._counters.restarted()

    # How a step is made -------------------------------------------------------------------------

    def _advance(
        self, closure: Closures, rule: Update
    ) -> tuple[_Live, list[Tensor], list[Tensor], list[bool], Tensor]:
        """Compute u_t, z_t and the direction of the step rule, and commit them after all checks.

        Returns the parameters with their states, z_t, the directions, which parameters received a
        gradient, and the mean of f.
        """
        live = self._prepare()
        closures, c = as_closures(closure), self._coefficients()
        now, table, method = self._counters.position(), self.table, self.method
        if method.anchored and self.snapshot_due:
            what = "is due" if now.snapshot_step else "was never taken"
            raise ValueError(f"a snapshot {what} before step {now.step + 1}: call snapshot first")
        stay = () if now.moved else (Point.PREVIOUS,)
        places = {}
        for point in method.points:
            places[point] = [state[point.value] for state in live.states]
        anchors = None
        if method.anchored:
            anchors = locals_of([state["anchor"] for state in live.states])
        checks = Checks(self._share, self.objective.inner_dim, self._host.device)
        s = Step(
            method=method,
            coefficients=c,
            number=now.step + 1,
            coincide=(*stay, Point.SNAPSHOT) if now.at_snapshot else stay,
            rows=self._rows,
            table=table,
            dtype=self._dtype,
            num_blocks=self.objective.num_blocks,
            ranks=self.ranks.size,
            checks=checks,
        )
        buckets = self.ranks.reduction.active
        gradients = GradientSum(live.params, live.z, safeguard=self.safeguard, in_buckets=buckets)
        with Oracle(
            live.params,
            closures,
            self._buffers,
            self.ranks.reduction,
            gradients=gradients,
            places=places,
            factor=self._share.weight,
        ) as oracle:
            u, z = take(s, oracle, live.z, anchors)
            blocks, old = s.probed()
            checks.distinct(blocks)
            checks.rows(u, blocks, "u")
            checks.finite(z, "z")
            z = likes(z, live.params)
            staged = self._staged(live, z)
            along = locals_of(rule.directions(z, staged))
            for direction, here in zip(along, live.z, strict=True):
                if direction.shape != here.shape:
                    raise ValueError(
                        f"{type(rule).__name__}.directions must give a tensor of the shape of z "
                        f"for every parameter, got {tuple(direction.shape)}"
                    )
            if along[0] is not z[0]:  # a plain step goes along z itself
                checks.finite(along, f"direction of {type(rule).__name__}")
            mean = self._rows.outer(u, blocks).mean()
            if self.ranks.size == 1:
                samples, value = checks.settle(checks.samples), mean
            else:
                samples, value = agree(checks, self.ranks, s.count, mean)
        if s.number == 1 and self.ranks.size > 1 and not self.ranks.reduction.modules:
            warnings.warn(
                f"{self.ranks.size} ranks share the blocks, but no module of DDP or FSDP2 was "
                "called that averages their gradients",
                stacklevel=users_line(),
            )
        # Every check has passed: what follows only writes.
        if table is not None:
            table.write(blocks, old, u, step=s.number, beta=c.beta)
        for state, new in zip(live.states, staged, strict=True):
            state.update(new)
        self._keep(live, Point.PREVIOUS)
        pair = 2 if method.slope_at is SlopeAt.PAIR else 1
        self._counters.stepped(
            values=samples * oracle.value_passes * pair, gradients=samples * oracle.gradient_passes
        )
        return live, z, along, gradients.received, value

    def _staged(self, live: _Live, z: list[Tensor]) -> list[dict[str, Any]]:
        """The states with z_t, and with copies of what the step rule will overwrite.

        A rule that fails, or gives something that is not finite, then leaves nothing behind.
        """
        staged = []
        for state, new in zip(live.states, z, strict=True):
            copy = dict(state, z=new)
            for name in self._remembered:
                copy[name] = state[name].clone()
            staged.append(copy)
        return staged

    def _prepare(self) -> _Live:
        """The trainable parameters and their states; ``.grad`` is discarded.

        The state of a parameter that was frozen until now is new, and kept by ``_keep`` alone.
        """
        params: list[Tensor] = []
        states: list[dict[str, Any]] = []
        z, sizes = [], []
        for group in self.param_groups:
            before = len(params)
            for p in group["params"]:
                p.grad = None
                if not p.requires_grad:
                    continue
                state = self.state.get(p, {})
                if "z" not in state:
                    state = fresh_state(p, self.method, self.update) | state
                elif state["z"].device != p.device:
                    follow(state, p.device)
                params.append(p)
                states.append(state)
                z.append(state["z"])
            sizes.append(len(params) - before)
        if not params:
            self._trainable()  # raises
        if self.method.single_point and any(is_sharded(p) for p in params):
            raise ValueError("single_point=True is not supported with sharded parameters (DTensor)")
        if self._rows.objective is not self.objective:  # it was replaced
            self._rows = rows_of(self.objective)
        device = self._host.device
        for buffer in self._buffers if isinstance(self._buffers, list) else ():
            if buffer.device != device:
                raise ValueError(
                    f"buffers are not on {device}, where the parameters are: a module that moves "
                    "gets new buffers, so build the optimizer after moving the model"
                )
        table = self.table
        if table is not None and self._table_on is None:
            table.follow(device)
        return _Live(params, states, locals_of(z), sizes)

    def _keep(self, live: _Live, point: Point) -> None:
        """Keep the states, and remember where every parameter stands now as ``point``."""
        for p, state in zip(live.params, live.states, strict=True):
            self.state[p] = state
        there, here = [], []
        for group in self.param_groups:  # the frozen ones too: they may thaw
            for p in group["params"]:
                if p in self.state and point.value in self.state[p]:
                    there.append(self.state[p][point.value])
                    here.append(p)
        if there:
            torch._foreach_copy_(locals_of(there), locals_of(here))
        if not self._host.requires_grad:
            # torch.distributed.checkpoint passes over the state of frozen parameters.
            old, self._host = self.state[self._host], live.params[0]
            self.state[self._host].update({name: old.pop(name) for name in SHARED if name in old})

    def _coefficients(self) -> Coefficients:
        c = Coefficients.of_groups(self.param_groups)
        if not self.method.corrected:
            return c
        if c.gamma == "age" and self.table and "last_visit" not in self.table.buffers:
            raise ValueError('gamma="age" needs an optimizer that was built with gamma="age"')
        if c.gamma == "theory" and c.beta > 0.5 and not self._warned:
            self._warned = True
            warnings.warn(
                f'gamma="theory" is analysed for beta <= 1/2 only, and beta={c.beta}',
                stacklevel=users_line(),
            )
        return c
