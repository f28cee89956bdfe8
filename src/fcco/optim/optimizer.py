"""The optimizer: it steps, estimates and takes snapshots."""

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fcco.distributed import Ranks
from fcco.distributed.sharded import is_sharded, likes, locals_of
from fcco.kernel.agreement import agree, equally_many
from fcco.kernel.checks import Checks
from fcco.kernel.exact import Exact, ExactPass
from fcco.kernel.gradients import GradientSum
from fcco.kernel.oracle import Oracle, as_closures
from fcco.kernel.rows import rows_of
from fcco.kernel.safeguard import ChangeBound
from fcco.kernel.step import Step, surprises, take
from fcco.kernel.storage import Place
from fcco.kernel.writes import Writes, commit
from fcco.methods import Beta, Coefficients, Gamma, Method, Point, SlopeAt, next_gain
from fcco.optim.arguments import check_gain, check_problem
from fcco.optim.block_optimizer import BlockOptimizer, Params
from fcco.optim.caller import users_line
from fcco.optim.counters import Position
from fcco.optim.memory import ANCHOR_STEP, follow, known
from fcco.problem import Closures, Objective
from fcco.problem.batches import NoBlocks
from fcco.updates import Plain, Update

__all__ = ["CompositionalOptimizer"]

_Then = Callable[["_Live", list[Tensor], list[Tensor], list[bool]], Writes]
"""The changes made with the parameters, z_t, the directions, and which parameters received a
gradient."""


class _Live(NamedTuple):
    """The trainable parameters, and what is remembered of each, at the start of a step."""

    params: list[Tensor]
    parts: list[Tensor]
    """What this rank holds of them, where they are sharded."""
    states: list[dict[str, Any]]
    z: list[Tensor]
    """z_{t-1}; of a sharded parameter the local part."""
    sizes: list[int]
    """How many trainable parameters each group has."""
    owned: list[Tensor]
    """All parameters that may differ at an older point: frozen ones that were trained too."""
    held: list[dict[str, Any]]
    """The states of these."""


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
        beta: weight of the new in u, in (0, 1]; "auto": chosen from the drift of rows and the
            noise of fresh values (``Probe.noise``; 0.5 where an objective does not report it); or
            a rule that gives each row its own, as ("scent", 0.0), see ``fcco.methods.RULES``.
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
        >>> objective = MultiTaskAUC(torch.arange(30) % 10)  # ten classes
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
        beta: Beta = 0.5,
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
        gamma = ("age" if method.corrected else 0.0) if gamma is None else gamma
        check_gain(method, beta, gamma)
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

        With a batch in which there is no block (``EmptyBatch``) nothing changes, and 0 is returned.

        Args:
            closure: one closure, or several (micro-batches of disjoint blocks). Under FSDP2 every
                rank brings equally many; under DDP the numbers may differ.
        """
        try:
            return self._advance(closure, self.update, self._moves)
        except NoBlocks as error:
            return self._skip(closure, error)

    @torch.no_grad()
    def estimate(self, closure: Closures) -> Tensor:
        """Advance u and z, copy z into ``.grad`` and leave w alone, for any torch optimizer.

        With a batch in which there is no block nothing changes, and ``.grad`` is empty.

        Args:
            closure: as for ``step``.
        """
        try:
            return self._advance(closure, Plain(), self._hands)
        except NoBlocks as error:
            return self._skip(closure, error)

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
        m, device = self.objective.num_blocks, live.params[0].device
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
            live.params, chunks, self._buffers, ranks.reduction, gradients=gradients
        ) as oracle:
            exact = exact_pass.run(oracle)
            writes = ranks.together(device, lambda: self._taken(live, exact, now, filled=fill))
            commit(oracle.leave() + writes)

    def restart(self) -> None:
        """Begin a stage from another iterate: w_0 = w_1 and u_{-1} = u_0; u and z stay.

        The corrections since the previous point then vanish in the next step. A snapshot taken
        before the parameters were set to the new iterate is kept, as the older point it is.
        """
        now = self._counters.position()
        commit(self._counters.put(now._replace(moved=False, at_snapshot=False)))

    # How a step is made -------------------------------------------------------------------------

    def _skip(self, closure: Closures, error: NoBlocks) -> Tensor:
        """What a step without blocks returns; it has changed nothing, as with any error."""
        if self.ranks.size > 1 or not callable(closure):
            raise error  # the other ranks or micro-batches have blocks
        return torch.zeros((), dtype=self._dtype, device=next(self._all_params()).device)

    def _advance(self, closure: Closures, rule: Update, then: _Then) -> Tensor:
        """Compute u_t, z_t and the direction of the step rule; commit them after all checks.

        Returns the mean of f.

        Args:
            closure: as for ``step``.
            rule: the step rule.
            then: the changes that use what was computed.
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
            places[point] = list(map(itemgetter(point.value), live.held))
        anchors = None
        if method.anchored:
            anchors = locals_of(map(itemgetter("anchor"), live.states))
        checks = Checks(self._share, self.objective.inner_dim, live.params[0].device)
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
            single=len(closures) == 1 and self.ranks.size == 1,
        )
        buckets = self.ranks.reduction.active
        gradients = GradientSum(live.params, live.z, safeguard=self.safeguard, in_buckets=buckets)
        if self.ranks.size > 1 and (
            gradients.narrow or not self.ranks.reduction.defer or any(map(is_sharded, live.params))
        ):
            why = "ranks meet in every closure (sharded or bf16 parameters, or defer=False)"
            equally_many(len(closures), self.ranks, live.params[0].device, why)
        with Oracle(
            live.owned,
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
            # All changes are prepared before the last check, in which the ranks agree: nothing
            # can fail after it.
            writes = self._keeps(live, Point.PREVIOUS) + then(live, z, along, gradients.received)
            for state, new in zip(live.states, staged, strict=True):
                writes.append(partial(state.update, new))
            if table is not None:
                writes += table.writes(blocks, old, u, step=s.number, beta=c.beta)
            if s.number == 1 and self.ranks.size > 1 and not self.ranks.reduction.modules:
                warnings.warn(
                    f"{self.ranks.size} ranks share the blocks, but no module of DDP or FSDP2 was "
                    "called that averages their gradients",
                    stacklevel=users_line(),
                )
            sums = surprises(s) if c.learns else None
            if self.ranks.size == 1:
                samples, seen = checks.read(checks.samples, sums)
            else:
                samples, of_all, seen = agree(checks, self.ranks, s.count, mean, sums)
                writes.append(partial(mean.fill_, of_all))
            if table is not None and c.auto:
                memory = table.buffers["gain"]
                writes.append(partial(memory.copy_, next_gain(memory, seen)))
            pair = 2 if method.slope_at is SlopeAt.PAIR else 1
            after = Position(
                step=s.number,
                snapshot_step=now.snapshot_step,
                moved=True,
                values=now.values + samples * oracle.value_passes * pair,
                gradients=now.gradients + samples * oracle.gradient_passes,
            )
            commit(oracle.keep() + self._counters.put(after) + writes)
        return mean

    def _taken(self, live: _Live, exact: Exact, now: Position, *, filled: bool) -> Writes:
        """Changes that keep a snapshot, and fill the table with it."""
        writes = self._keeps(live, Point.SNAPSHOT) + self._counters.put(
            now._replace(
                snapshot_step=now.step + 1,
                at_snapshot=True,
                values=now.values + exact.value_queries,
                gradients=now.gradients + exact.gradient_queries,
            )
        )
        table = self.table
        if table is not None:
            inner = exact.inner[table.share.start : table.share.stop]
            samples = exact.samples[table.share.start : table.share.stop]
            if filled:
                ids = torch.arange(table.share.start, table.share.stop, device=inner.device)
                writes += table.fill(self._rows.project(inner, ids), step=now.step)
            writes += table.keep_snapshot(inner, samples, filled=filled)
        anchors = likes(exact.gradients, live.params)
        for state, anchor in zip(live.states, anchors, strict=True):
            writes.append(partial(state.update, anchor=anchor))
            writes.append(partial(state[ANCHOR_STEP].fill_, now.step + 1))
        return writes

    def _moves(
        self, live: _Live, z: list[Tensor], along: list[Tensor], received: list[bool]
    ) -> Writes:
        """Changes that make the step: w_{t+1} = (1 - lr weight_decay) w_t - lr direction."""
        writes: Writes = []
        moves = zip(live.parts, along, received, strict=True)
        for group, size in zip(self.param_groups, live.sizes, strict=True):
            if not size:
                continue
            params, directions, got = zip(*islice(moves, size), strict=True)
            if group["weight_decay"] != 0 and any(got):
                decay = [p for p, moved in zip(params, got, strict=True) if moved]
                kept = 1 - group["lr"] * group["weight_decay"]
                writes.append(partial(torch._foreach_mul_, decay, kept))
            writes.append(partial(torch._foreach_add_, params, directions, alpha=-group["lr"]))
        return writes

    def _hands(
        self, live: _Live, z: list[Tensor], along: list[Tensor], received: list[bool]
    ) -> Writes:
        """Changes that put z_t into ``.grad``."""
        pairs = zip(live.params, z, strict=True)
        return [partial(setattr, p, "grad", new.to(p.dtype, copy=True)) for p, new in pairs]

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

        A parameter that was frozen until now gets a new state, which is stored with the commit.
        """
        params: list[Tensor] = []
        states: list[dict[str, Any]] = []
        z, sizes, frozen, held = [], [], [], []
        for group in self.param_groups:
            before = len(params)
            for p in group["params"]:
                p.grad = None
                state = self.state.get(p, {})
                if not p.requires_grad:
                    if known(state):
                        frozen.append(p)
                        held.append(state)
                    continue
                if not isinstance(state.get("z"), Tensor):
                    state = self._fresh(p)
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
        device = params[0].device
        for buffer in self._buffers if isinstance(self._buffers, list) else ():
            if buffer.device != device:
                raise ValueError(
                    f"buffers are not on {device}, where the parameters are: a module that moves "
                    "gets new buffers, so build the optimizer after moving the model"
                )
        table = self.table
        if table is not None and self._table_on is None:
            table.follow(device)
        parts, owned, held = locals_of(params), params + frozen, states + held
        return _Live(params, parts, states, locals_of(z), sizes, owned, held)

    def _keeps(self, live: _Live, point: Point) -> Writes:
        """Changes that keep the states, and where every parameter stands now as ``point``."""
        writes: Writes = [partial(self.state.update, dict(zip(live.owned, live.held, strict=True)))]
        if point in self.method.points:
            there = map(itemgetter(point.value), live.held)
            copies = locals_of(there), locals_of(live.owned)
            writes.append(partial(torch._foreach_copy_, *copies))
        return writes

    def _coefficients(self) -> Coefficients:
        c = Coefficients.of_groups(self.param_groups)
        if c.auto or c.rule is not None:
            check_gain(self.method, self.param_groups[0]["beta"], c.gamma)
        if c.auto and self.table is not None:
            if "gain" not in self.table.buffers:
                raise ValueError('beta="auto" needs an optimizer that was built with beta="auto"')
            c = c.chosen(self.table.buffers["gain"])
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
