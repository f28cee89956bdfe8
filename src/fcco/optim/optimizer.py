"""The optimizer that all methods share, which steps, estimates and takes snapshots."""

import warnings
from collections.abc import Iterable
from itertools import islice
from operator import is_not, itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.optimizer import ParamsT

from fcco.distributed import Ranks
from fcco.distributed.sharded import is_sharded, likes, locals_of
from fcco.kernel.agreement import agree, require_equal_counts
from fcco.kernel.checks import Checks
from fcco.kernel.exact import ExactPass
from fcco.kernel.gradients import GradientSum
from fcco.kernel.interrupts import defer_interrupts
from fcco.kernel.oracle import Oracle, as_closures
from fcco.kernel.rows import Rows
from fcco.kernel.safeguard import ChangeBound
from fcco.kernel.step import Step, sum_surprises, take
from fcco.kernel.storage import Place, zeros_at
from fcco.methods import Beta, Coefficients, Gamma, Method, Point, SlopeAt, next_gain
from fcco.optim.arguments import check_gain, check_problem, read_initial, user_stacklevel
from fcco.optim.memory import (
    ANCHOR_STEP,
    OWN_STATE,
    Position,
    build_table,
    fresh_state,
    has_anchor,
    is_known,
    move_state,
    too_precise,
)
from fcco.optim.remembering import RememberingOptimizer
from fcco.optim.state_dict import SHARED
from fcco.problem import Closures, Objective
from fcco.problem.batches import NoBlocks
from fcco.updates import Plain, Update

__all__ = ["CompositionalOptimizer", "Params"]

Params = ParamsT | nn.Module
"""Parameters, parameter groups, or a module, whose buffers are then used too."""


class _Live(NamedTuple):
    """The trainable parameters and their states at the start of a step."""

    params: list[Tensor]
    parts: list[Tensor]
    """The local parts of sharded parameters; other parameters as they are."""
    states: list[dict[str, Any]]
    z: list[Tensor]
    """z_{t-1}, or its local part if the parameter is sharded."""
    sizes: list[int]
    """Number of trainable parameters in each group."""
    movable: list[Tensor]
    """All parameters that may differ at an older point, including frozen ones that were trained."""
    movable_parts: list[Tensor]
    movable_states: list[dict[str, Any]]
    places: dict[Point, list[Tensor]]
    """``movable_parts`` at the older points."""


class CompositionalOptimizer(RememberingOptimizer):
    """An optimizer that combines any method with any step rule.

    ``SOX``, ``SOAP``, ``MSVRM``, ``SVRG``, ``Variant``, ``FreshPair`` and ``BSGD`` are subclasses
    that choose the method.

    Args:
        params: a module, whose buffers are then used too; or parameters; or parameter groups. lr
            and weight_decay may differ between groups. Pass all trainable parameters that the
            closure uses. Others collect weighted gradients of all points in ``.grad``. For several
            optimizers, pass all of them here and use ``estimate``.
        objective: the problem, see ``Objective``.
        method: the method, which consists of two rows of weights, see ``fcco.methods``.
        update: the step rule, see ``fcco.updates``; by default ``Plain()``.
        lr: the step size.
        alpha: the weight of the new gradient in z, in (0, 1].
        beta: the weight of the fresh value in u, in (0, 1]. With "auto", it is chosen from the
            drift of rows and the noise of fresh values (``Probe.noise``), and it is 0.5 if an
            objective does not report the noise. A rule such as ("scent", 0.0) gives each row its
            own weight, see ``fcco.methods.RULES``.
        gamma: the strength of the error correction: "theory", "storm", "age" or a number, see
            ``MSVRM``. By default it is "age" for a method that has a correction.
        snapshot_every: the number of steps between exact passes (version 3, SVRG), or None if you
            decide when to call ``snapshot``.
        buffers: ``model.buffers()``, if ``params`` are parameters and a forward pass changes
            buffers (as BatchNorm does).
        initial: the initial table, (m, p), or a number for every row. By default each row takes
            its fresh value at its first visit.
        weight_decay: the decoupled weight decay, as in AdamW.
        safeguard: a bound on the gradient's change at large steps, see ``ChangeBound``; or None.
        table_on: a device for the table, or a directory for a memory-mapped file if there are more
            blocks than memory. By default the table is on the device of the parameters.
        ranks: the processes that share the blocks, by default all of ``torch.distributed`` if it
            is initialized.

    Examples:
        >>> from fcco.methods import MSVRM_V2
        >>> from fcco.objectives import MultiTaskAUC
        >>> model = torch.nn.Linear(4, 10)
        >>> objective = MultiTaskAUC(torch.arange(30) % 10)  # ten classes
        >>> opt = CompositionalOptimizer(model, objective, MSVRM_V2, lr=0.1)
        >>> opt.table.read(torch.tensor([0])).shape
        torch.Size([1, 4])
    """

    _pickled = (
        *RememberingOptimizer._pickled,
        "objective",
        "snapshot_every",
        "safeguard",
        "_buffers",
        "_dtype",
        "_rows",
        "_share",
        "_table_on",
        "_warned",
    )

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
        initial = read_initial(initial, objective)
        self.objective = objective
        self.method = method
        self.update = Plain() if update is None else update
        self.snapshot_every = snapshot_every
        self.safeguard = safeguard
        self.ranks = Ranks() if ranks is None else ranks
        self._share = share = self.ranks.share(objective.num_blocks)
        if share.min_count == 0:
            raise ValueError(f"{share.total} blocks cannot be shared by {share.size} ranks")
        self._buffers: list[Tensor] | nn.Module = list(buffers)
        if isinstance(params, nn.Module):
            if self._buffers:
                raise ValueError("a module brings its own buffers: leave out buffers=")
            self._buffers, params = params, params.parameters()
        self._table_on = table_on
        self._warned = False
        self._rows = Rows(objective)
        self._progress = Position.zeros()
        self.table = None
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "alpha": alpha,
            "beta": beta,
            "gamma": gamma,
        }
        super().__init__(params, defaults)
        device = self._trainable()[0].device
        self._dtype = torch.promote_types(objective.row_dtype, torch.float32)
        for p in self._all_params():
            # The table has at least the precision of the parameters, so that u does not round g.
            # A frozen parameter may also be complex, or have one byte, which torch may not promote.
            if p.is_floating_point() and p.dtype.itemsize > 1:
                self._dtype = torch.promote_types(self._dtype, p.dtype)
        if isinstance(initial, Tensor):
            self._dtype = torch.promote_types(self._dtype, initial.dtype)
        if method.inner is not None:
            self.table = build_table(
                self._rows,
                method,
                share,
                dtype=self._dtype,
                zeros=zeros_at(table_on, device),
                gamma=gamma,
                beta=beta,
                initial=initial,
            )
        # When torch unflattens a state, it restores only the keys that the live group has.
        shared = ["progress"] if self.table is None else ["progress", "table"]
        next(group for group in self.param_groups if group["params"])[SHARED] = shared
        self._coefficients()

    @property
    def snapshot_due(self) -> bool:
        """Whether ``snapshot`` must be called before the next step."""
        if not self.method.anchored:
            return False
        now = Position.read(self._progress)
        if now.snapshot_step == 0:
            return True
        age = now.step + 1 - now.snapshot_step
        if self.snapshot_every is not None and age >= self.snapshot_every:
            return True
        # A parameter that was added or unfrozen since the last snapshot has no anchor yet.
        return not all(
            has_anchor(self.state.get(p, {}), now.snapshot_step) for p in self._trainable()
        )

    @property
    def at_snapshot(self) -> bool:
        """Whether the last snapshot was taken at the current point."""
        return Position.read(self._progress).at_snapshot

    # Public methods -------------------------------------------------------------------------------

    @torch.no_grad()
    def step(self, closure: Closures) -> Tensor:  # type: ignore[override]  # a Probe, not a loss
        """Update u and z with one sample, then move w; return the mean of f_i(u_t^i).

        The mean is over the probed blocks. A batch without any block (``EmptyBatch``) changes
        nothing but ``.grad``, which becomes None, and the step returns 0.

        Args:
            closure: a function without arguments that returns a ``Probe``, or a sequence of them
                (micro-batches of disjoint blocks). Under FSDP2 all ranks must pass equally many;
                under DDP the numbers may differ.
        """
        try:
            return self._advance(closure, self.update, move=True)
        except NoBlocks as error:
            return self._skip(closure, error)

    @torch.no_grad()
    def estimate(self, closure: Closures) -> Tensor:
        """Update u and z and copy z into ``.grad``, for use with any torch optimizer.

        The parameters do not move. A batch without any block changes nothing, and ``.grad`` is
        None. Returns the mean of f_i(u_t^i), as ``step`` does.

        Args:
            closure: one or several closures, as for ``step``.
        """
        try:
            return self._advance(closure, Plain(), move=False)
        except NoBlocks as error:
            return self._skip(closure, error)

    @torch.no_grad()
    def snapshot(self, closures: Closures) -> None:
        """Take one exact pass at w_t, which computes g_i(w_t) for all i and the full gradient.

        The first snapshot also fills the table, unless ``initial`` was given. Buffers and the
        random state are left as they were. With BatchNorm each chunk is normalized by its own
        statistics, so use chunks of the size of the training batches.

        Args:
            closures: the chunks, one closure each. Together they cover every block. A block in
                several chunks is averaged by ``Probe.samples``. With several ranks, each rank
                passes its own part of the chunks, and all ranks pass equally many.
        """
        if not self.method.anchored:
            raise ValueError(f"{self.method.name} has no snapshots; version 3 and SVRG have")
        live = self._prepare()
        now, table, ranks = Position.read(self._progress), self.table, self.ranks
        first = now.snapshot_step == 0
        m, device = self.objective.num_blocks, live.params[0].device
        # With ``initial`` every row counts as visited, and the first snapshot leaves it alone.
        fill = first and table is not None and not bool(table.visited.all())
        fill = ranks.any(fill, device)
        # A method with slopes at the table needs all rows on every rank, because any rank's chunk
        # may contain any block.
        rows = totals = None
        if table is not None and not fill and self.method.slope_at is SlopeAt.TABLE:
            rows = ranks.whole(table.whole().to(device), m)
        if table is not None and table.samples is not None and not first:
            totals = ranks.whole(table.samples.to(device), m)
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
        # Chunks add up in float32 or more, so that many of them do not round.
        gradients = GradientSum(live.params, live.z, apart=True)
        with Oracle(
            live.params, live.parts, chunks, self._buffers, ranks.reduction, gradients=gradients
        ) as oracle:
            exact = exact_pass.run(oracle)
            mine = slice(self._share.start, self._share.stop)
            inner, samples = exact.inner[mine], exact.samples[mine]
            ids = torch.arange(mine.start, mine.stop, device=inner.device)
            anchors = likes(exact.gradients, live.params)
            project = lambda: self._rows.project(inner, ids) if fill else None  # noqa: E731
            filling = ranks.together(device, project)
            kept = inner
            if table is not None:
                kept = table.whole() if filling is None else filling
            # All checks have passed. From here on, state is only written, and Ctrl-C waits, so
            # that an interrupted snapshot is either complete or has changed nothing.
            with defer_interrupts():
                oracle.leave()
                self._store_point(live, Point.SNAPSHOT)
                for state, anchor in zip(live.states, anchors, strict=True):
                    state["anchor"] = anchor
                    state[ANCHOR_STEP].fill_(now.step + 1)
                # A frozen parameter took no part, though it may have at an earlier snapshot of
                # the same step.
                for state in live.movable_states[len(live.states) :]:
                    state[ANCHOR_STEP].fill_(0)
                if table is not None:
                    if filling is not None:
                        table.fill(filling, step=now.step)
                    table.keep_snapshot(inner, samples, kept)
                now._replace(
                    snapshot_step=now.step + 1,
                    at_snapshot=True,
                    values=now.values + exact.value_queries,
                    gradients=now.gradients + exact.gradient_queries,
                ).write(self._progress)

    def restart(self) -> None:
        """Begin a new stage from another iterate: set w_0 = w_1 and u_{-1} = u_0, and keep u and z.

        Call it after you have set the parameters. The corrections since the previous point then
        vanish in the next step. An earlier snapshot is kept, as a snapshot of an older point.
        """
        now = Position.read(self._progress)
        with defer_interrupts():
            now._replace(moved=False, at_snapshot=False).write(self._progress)

    # Parts of a step ------------------------------------------------------------------------------

    def _advance(self, closure: Closures, rule: Update, *, move: bool) -> Tensor:
        """Compute u_t, z_t and the direction, check all, then write them; return the mean of f.

        Args:
            closure: one or several closures, as for ``step``.
            rule: the step rule.
            move: whether w moves. If not, z_t is copied into ``.grad``.
        """
        live = self._prepare()
        closures, c = as_closures(closure), self._coefficients()
        now = Position.read(self._progress)
        table, method, ranks = self.table, self.method, self.ranks
        if method.anchored and self.snapshot_due:
            what = "is due" if now.snapshot_step else "was never taken"
            raise ValueError(f"a snapshot {what} before step {now.step + 1}: call snapshot first")
        # A point that coincides with the current one is not evaluated again.
        coincide = [] if now.moved else [Point.PREVIOUS]
        if now.at_snapshot:
            coincide.append(Point.SNAPSHOT)
        checks = Checks(self._share, self.objective.inner_dim, live.params[0].device)
        s = Step(
            method=method,
            coefficients=c,
            number=now.step + 1,
            coincide=coincide,
            rows=self._rows,
            table=table,
            dtype=self._dtype,
            num_blocks=self.objective.num_blocks,
            ranks=ranks.size,
            checks=checks,
            single=len(closures) == 1 and ranks.size == 1,
        )
        # DDP may keep ``.grad`` as views into its buckets, which later passes overwrite.
        buckets = ranks.reduction.active
        gradients = GradientSum(live.params, live.z, safeguard=self.safeguard, in_buckets=buckets)
        if ranks.size > 1:
            self._check_ranks(len(closures), live.params, gradients)
        anchors = None
        if method.anchored:
            anchors = locals_of(state["anchor"] for state in live.states)
        with Oracle(
            live.movable,
            live.movable_parts,
            closures,
            self._buffers,
            ranks.reduction,
            gradients=gradients,
            places=live.places,
            factor=self._share.weight,
        ) as oracle:
            u, z = take(s, oracle, live.z, anchors)
            blocks, old = s.probed()
            checks.distinct(blocks)
            checks.rows(u, blocks, "u")
            checks.finite(z, "z")
            z = likes(z, live.params)
            # The step rule works on copies of its state: an error below must leave no trace.
            states = self._copy_states(live, z)
            directions = self._directions(rule, z, states, live, checks)
            values = self._rows.outer(u, blocks)
            checks.rows(values, blocks, "f(u)")
            # The value that ``step`` returns, f at the new rows u_t.
            mean = values.mean()
            if s.number == 1 and ranks.size > 1 and not ranks.reduction.modules:
                warnings.warn(
                    f"{ranks.size} ranks share the blocks, but no module of DDP or FSDP2 was "
                    "called that averages their gradients",
                    stacklevel=user_stacklevel(),
                )
            grads: list[Tensor] = []
            if not move:
                grads = [new.to(p.dtype, copy=True) for p, new in zip(live.params, z, strict=True)]
            # This is the only transfer from the device to the host in a step. It brings the
            # result of all checks, the number of samples, and the sums for beta="auto".
            sums = sum_surprises(s) if c.learns else None
            if ranks.size == 1:
                samples, lesson = checks.read(checks.samples, sums)
            else:
                samples, of_all, lesson = agree(checks, ranks, s.count, mean, sums)
                mean.fill_(of_all)
            gain = None
            if table is not None and table.gain is not None and c.auto:
                gain = next_gain(table.gain, lesson)
            # All checks have passed on all ranks. From here on, state is only written: first the
            # table, then RNG and buffers, w_{t-1}, z and the step rule's state, then w itself.
            with defer_interrupts():
                if table is not None:
                    table.write(blocks, old, u, step=s.number, beta=c.beta, gain=gain)
                oracle.keep()
                # Before w moves, because the current point becomes w_{t-1} of the next step.
                self._store_point(live, Point.PREVIOUS)
                for state, new in zip(live.states, states, strict=True):
                    state.update(new)
                if move:
                    self._move(live, directions, gradients.received)
                else:
                    for p, grad in zip(live.params, grads, strict=True):
                        p.grad = grad
                Position(
                    step=s.number,
                    snapshot_step=now.snapshot_step,
                    moved=True,
                    values=now.values
                    + samples * oracle.value_passes * (2 if method.needs_pair else 1),
                    gradients=now.gradients + samples * oracle.gradient_passes,
                ).write(self._progress)
        return mean

    def _skip(self, closure: Closures, error: NoBlocks) -> Tensor:
        """Return the result of a step without blocks, which has changed nothing."""
        if self.ranks.size > 1 or not callable(closure):
            raise error  # other ranks or micro-batches may have blocks
        return torch.zeros((), dtype=self._dtype, device=next(self._all_params()).device)

    def _prepare(self) -> _Live:
        """Return the trainable parameters and their states, and set ``.grad`` to None.

        A parameter that was frozen until now gets a new state. It is stored only at the end of the
        step, after all checks.
        """
        for group in self.param_groups:  # all of them, before the first error
            for p in group["params"]:
                p.grad = None
        params: list[Tensor] = []
        states: list[dict[str, Any]] = []
        z, sizes, frozen, frozen_states = [], [], [], []
        for group in self.param_groups:
            before = len(params)
            for p in group["params"]:
                state = self.state.get(p, {})
                if not p.requires_grad:
                    # A frozen parameter that was trained earlier has other values at older points.
                    if is_known(state):
                        frozen.append(p)
                        frozen_states.append(state)
                    continue
                if not isinstance(state.get("z"), Tensor):
                    state = fresh_state(p, self.method, self.update)
                elif state["z"].device != p.device:
                    move_state(state, p.device)
                if torch.promote_types(p.dtype, state["z"].dtype) != state["z"].dtype or (
                    torch.promote_types(p.dtype, self._dtype) != self._dtype
                ):
                    raise too_precise(p)
                params.append(p)
                states.append(state)
                z.append(state["z"])
            sizes.append(len(params) - before)
        if not params:
            self._trainable()  # raises
        if self.method.single_point and any(is_sharded(p) for p in params):
            raise ValueError("single_point=True is not supported with sharded parameters (DTensor)")
        if self._rows.objective is not self.objective:  # it was replaced
            self._rows = Rows(self.objective)
        device = params[0].device
        for buffer in self._buffers if isinstance(self._buffers, list) else ():
            if buffer.device != device:
                raise ValueError(
                    f"buffers are not on {device}, where the parameters are: a module that moves "
                    "gets new buffers, so build the optimizer after moving the model"
                )
        table = self.table
        if table is not None and self._table_on is None and table.rows.device != device:
            table.follow(device)
        movable, movable_states = params + frozen, states + frozen_states
        parts = locals_of(movable)
        places = {}
        for point in self.method.points:
            places[point] = locals_of(map(itemgetter(point.value), movable_states))
        return _Live(
            params,
            parts[: len(params)],
            states,
            locals_of(z),
            sizes,
            movable,
            parts,
            movable_states,
            places,
        )

    def _check_added(self, params: list[Tensor]) -> None:
        """Raise a ``ValueError`` if no step could be taken with the group that was added."""
        self._coefficients()
        for p in params:
            if p.requires_grad and torch.promote_types(p.dtype, self._dtype) != self._dtype:
                raise too_precise(p)

    def _coefficients(self) -> Coefficients:
        """Read the coefficients of the next step from the parameter groups, and check them."""
        table = self.table
        c = Coefficients.from_groups(self.param_groups, None if table is None else table.gain)
        if c.auto or c.rule is not None:
            check_gain(self.method, self.param_groups[0]["beta"], c.gamma)
        if c.auto and table is not None and table.gain is None:
            raise ValueError('beta="auto" needs an optimizer that was built with beta="auto"')
        if not self.method.corrected:
            return c
        if c.gamma == "age" and table is not None and table.last_visit is None:
            raise ValueError('gamma="age" needs an optimizer that was built with gamma="age"')
        if c.gamma == "theory" and c.beta > 0.5 and not self._warned:
            self._warned = True
            warnings.warn(
                f'gamma="theory" is analysed for beta <= 1/2 only, and beta={c.beta}',
                stacklevel=user_stacklevel(),
            )
        return c

    def _check_ranks(self, closures: int, params: list[Tensor], gradients: GradientSum) -> None:
        """Raise an error unless all ranks have equally many closures, where that is needed."""
        if gradients.narrow or not self.ranks.reduction.defer or any(map(is_sharded, params)):
            reason = "ranks meet in every closure (sharded or bf16 parameters, or defer=False)"
            require_equal_counts(closures, self.ranks, params[0].device, reason)

    def _copy_states(self, live: _Live, z: list[Tensor]) -> list[dict[str, Any]]:
        """Return z_t and copies of what the step rule will overwrite, for every parameter.

        With copies, a rule that fails or returns something that is not finite changes nothing.
        """
        copies = []
        for state, new in zip(live.states, z, strict=True):
            copy = {"z": new}
            for name in state.keys() - OWN_STATE:
                copy[name] = state[name].clone()
            copies.append(copy)
        return copies

    def _directions(
        self,
        rule: Update,
        z: list[Tensor],
        states: list[dict[str, Any]],
        live: _Live,
        checks: Checks,
    ) -> list[Tensor]:
        """Return the local part of the step rule's direction for every parameter."""
        directions = locals_of(rule.directions(z, states))
        for direction, here in zip(directions, live.z, strict=True):
            if direction.shape != here.shape:
                raise ValueError(
                    f"{type(rule).__name__}.directions must give a tensor of the shape of z for "
                    f"every parameter, got {tuple(direction.shape)}"
                )
        if any(map(is_not, directions, z)):  # a plain step goes along z itself
            checks.finite(directions, f"direction of {type(rule).__name__}")
        return directions

    def _store_point(self, live: _Live, point: Point) -> None:
        """Store the states, and the current parameters as the point ``point``."""
        for p, state in zip(live.movable, live.movable_states, strict=True):
            self.state[p] = state
        if point in live.places:
            torch._foreach_copy_(live.places[point], live.movable_parts)

    def _move(self, live: _Live, directions: list[Tensor], received: list[bool]) -> None:
        """Move the parameters: w_{t+1} = (1 - lr weight_decay) w_t - lr direction.

        A parameter that received no gradient at any point does not decay.
        """
        moves = zip(live.parts, directions, received, strict=True)
        for group, size in zip(self.param_groups, live.sizes, strict=True):
            if not size:
                continue
            # ``moves`` runs over the parameters of all groups; the next ``size`` are of this one.
            params, along, got = zip(*islice(moves, size), strict=True)
            lr = float(group["lr"])
            if group["weight_decay"] != 0 and any(got):
                decaying = [p for p, moved in zip(params, got, strict=True) if moved]
                torch._foreach_mul_(decaying, 1 - lr * float(group["weight_decay"]))
            torch._foreach_add_(params, along, alpha=-lr)
