"""One step of every method, from top to bottom.

    u_t = (1-beta)  u_{t-1} + a.current g(w_t) + sum_p a.since[p] (g(w_t) - g(p)) + a.anchor g(w_s)
    z_t = (1-alpha) z_{t-1} + b.current G(w_t) + sum_p b.since[p] (G(w_t) - G(p)) + b.anchor H_s

for the probed rows of u. a and b are the method's rows, p runs over w_{t-1} and the snapshot w_s,

    G(p) = (1/B1) sum_i grad g_i(p; xi)^T grad f_i(slope row of i at p).

``take`` visits the points; at each of them it observes the values, takes the slopes and
back-propagates them at once. ``track`` forms u_t and ``estimate`` z_t. Nothing changes here but the
record of this step: committing it is the optimizer's.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fcco.kernel.checks import Checks
from fcco.kernel.oracle import Oracle
from fcco.kernel.rows import Rows
from fcco.kernel.table import Remembered, Table
from fcco.methods import Coefficients, Method, Point, SlopeAt, Weights
from fcco.methods.weights import advance
from fcco.problem import Probe

__all__ = ["Part", "Step", "estimate", "observe", "sum_surprises", "take", "track"]

_FIRST = {False: Weights(current=1.0), True: Weights(anchor=1.0)}
"""The row of z at the first step, z_1 = G(w_1) or, anchored, z_1 = H: only what is known counts."""


@dataclass
class Part:
    """The probed rows of one closure, as seen at each point."""

    ids: Tensor
    before: Remembered
    values: dict[Point, Tensor] = field(default_factory=dict)
    old: Tensor = field(init=False)  # u_{t-1}; the fresh value where there is none
    derivative: Tensor | None = None  # of g(w_t; xi) along w_t - w_{t-1} (single point)
    noise: Tensor | None = None  # the standard error of g(w_t; xi)
    new: Tensor | None = None  # u_t, once it is known


@dataclass
class Step:
    """The record of one step: what it starts from, and what it has seen.

    Args:
        method: two rows of weights, and where slopes are taken.
        coefficients: of this step.
        number: t, from 1.
        coincide: the points that lie where the model stands, and are not visited again.
        rows: what a row of the table is.
        table: u_{t-1} and its older generations, or None.
        dtype: of the rows.
        num_blocks: m, of all ranks.
        ranks: how many processes probe equally many blocks each.
        checks: where doubts about what is seen are noted.
        single: there is one closure on one rank, so B1 is known when slopes are taken, and
            cotangents are those of the mean; otherwise the mean is taken when all were seen (ranks
            may differ in the number of their closures, and their gradients are averaged).

    ``weights`` are those of the gradients in z, ``count`` is B1 of this rank.
    """

    method: Method
    coefficients: Coefficients
    number: int
    coincide: Collection[Point]
    rows: Rows
    table: Table | None
    dtype: torch.dtype
    num_blocks: int
    ranks: int
    checks: Checks
    single: bool = False
    weights: dict[Point, float] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    count: int = 0

    def probed(self) -> tuple[Tensor, Tensor]:
        """Return the probed blocks, and u_{t-1} on them."""
        if len(self.parts) == 1:
            return self.parts[0].ids, self.parts[0].old
        return torch.cat([p.ids for p in self.parts]), torch.cat([p.old for p in self.parts])


def take(
    s: Step, oracle: Oracle, z: list[Tensor], anchor: list[Tensor] | None
) -> tuple[Tensor, list[Tensor]]:
    """Return u_t on the probed rows, and z_t.

    Args:
        s: the step, with nothing seen yet.
        oracle: shows the sample of this step at each point, and adds up the gradients.
        z: z_{t-1} for every parameter.
        anchor: H_s for every parameter, or None.
    """
    method, c = s.method, s.coefficients
    b = method.gradient.weights(c.alpha) if s.number > 1 else _FIRST[method.anchored]
    with_gradient = [p for p in method.gradient.points if p not in s.coincide and b.since(p) != 0]
    s.weights = b.at_points(with_gradient)
    corrected = method.corrected and c.corrects and Point.PREVIOUS not in s.coincide
    points = [p for p in method.points if p in with_gradient or _tracked(s, p, corrected)]
    # A row's first value is the fresh one at w_t, so w_t comes first. But where slopes are taken at
    # u_t it comes last: by then all that u_t needs was seen.
    points.insert(len(points) if method.slope_at is SlopeAt.UPDATED else 0, Point.CURRENT)
    last = max(map(points.index, s.weights))
    for number, point in enumerate(points):
        weight = s.weights.get(point)
        tangent = method.single_point and corrected and point is Point.CURRENT
        for k in range(oracle.num_closures):
            with oracle.show(point, k, weight=weight, tangent=tangent, last=number == last) as (
                probe,
                derivative,
            ):
                part = observe(s, point, k, probe, derivative)
                if weight is None:
                    continue
                slopes = _take_slopes(s, point, part, probe)
                if s.single:
                    oracle.backward(probe, slopes / len(part.ids), loss_weight=1)
                else:
                    # A closure's loss counts by its share of the blocks, so that mean losses give
                    # the mean loss.
                    oracle.backward(probe, slopes, loss_weight=len(part.ids))
    if method.corrected and c.gamma == "theory":
        c.check_gamma(s.num_blocks, s.count * s.ranks)
    u = [track(s, part) if part.new is None else part.new for part in s.parts]
    z = estimate(s, b, z, oracle.gradient(b), anchor)
    return u[0] if len(u) == 1 else torch.cat(u), z


def _tracked(s: Step, point: Point, corrected: bool) -> bool:
    """Return whether u needs the value at ``point``."""
    inner = s.method.inner
    if inner is None or point not in inner.points or point in s.coincide:
        return False
    by_gamma = inner.corrected and point is Point.PREVIOUS
    return not by_gamma or (corrected and not s.method.single_point)


def observe(s: Step, point: Point, k: int, probe: Probe, derivative: Tensor | None = None) -> Part:
    """Check and note what closure k reported at ``point``."""
    ids = s.checks.probe(point, k, probe)
    values = s.rows.read(probe, s.dtype)
    if k == len(s.parts):
        s.parts.append(Part(ids, s.table.recall(ids) if s.table is not None else _nothing(values)))
        s.count += len(ids)
    part = s.parts[k]
    if point is Point.CURRENT or Point.CURRENT not in part.values:
        # A row first visited now has its fresh value, in every generation. With updated slopes
        # w_t comes last, and until then the value at the first point stands in.
        fresh = s.rows.project(values, ids)
        part.old = torch.where(part.before.unvisited, fresh, part.before.old)
    if point is Point.CURRENT and probe.noise is not None:
        part.noise = probe.noise.detach().to(s.dtype)
    part.values[point] = values
    if derivative is not None:
        part.derivative = derivative.to(s.dtype)
    return part


def _nothing(values: Tensor) -> Remembered:
    """Return what a method without a table knows."""
    return Remembered(values, torch.ones_like(values[:, :1], dtype=torch.bool), None, None)


def _take_slopes(s: Step, point: Point, part: Part, probe: Probe) -> Tensor:
    """Return the slopes of f for G(point), one row per probed block."""
    ids, values = part.ids, part.values[point]
    match s.method.slope_at:
        case SlopeAt.TABLE if point in s.method.generations and s.table is not None:
            u = torch.where(part.before.unvisited, part.old, s.table.gather(ids, point))
        case SlopeAt.TABLE | SlopeAt.COMMON:
            u = part.old
        case SlopeAt.UPDATED:
            u = track(s, part, point)
            part.new = u if point is Point.CURRENT else None
        case SlopeAt.VALUE:
            u = s.rows.project(values, ids)
        case SlopeAt.PAIR:
            if probe.pair is None:
                raise ValueError(
                    f"{s.method.name} needs Probe.pair, values of a second, independent inner "
                    "sample"
                )
            u = s.rows.read(probe, s.dtype, pair=True)
    slopes = s.rows.slopes(u, values, ids, supported=not s.method.needs_pair)
    s.checks.rows(slopes, ids, f"slope of f at the {point.value} point (feasible?)")
    return slopes


def track(
    s: Step, part: Part, point: Point = Point.CURRENT, c: Coefficients | None = None
) -> Tensor:
    """Return u as this step's sample updates it at ``point``: u_t at w_t.

    At a further point, for updated slopes, no change since it is left: there remains
    (1 - beta) u_{t-1} + a.current g(point; xi) + a.anchor g(w_s).

    Args:
        s: the step.
        part: the rows of one closure.
        point: where.
        c: other coefficients than those of the step.
    """
    inner, c, seen = s.method.inner, c or s.coefficients, part.values
    if inner is None:
        return part.old
    further = {}
    if point is Point.CURRENT:
        for p in inner.points:
            if p in seen:
                further[p] = seen[p]
    count = s.count * s.ranks
    gamma: float | Tensor = 0.0
    if Point.PREVIOUS in further or part.derivative is not None:
        last = part.before.last_visit
        gamma = c.gamma_of(None if last is None else s.number - last, s.num_blocks, count, s.dtype)
    keep: float | Tensor = 1 - c.beta
    beta: float | Tensor = c.beta
    if c.rule is not None:
        keep, beta = c.shares(s.rows.logs(part.old), s.rows.logs(seen[point]))
    a = inner.weights(beta, gamma, s.num_blocks / count)
    u = s.rows.advance(part.old, keep, a, seen[point], further, part.derivative, part.before.anchor)
    return s.rows.project(torch.where(part.before.unvisited, part.old, u), part.ids)


def sum_surprises(s: Step) -> Tensor:
    """Return what the gain learns from a step, (3,): see ``fcco.methods.next_gain``.

    A fresh value is compared with the row as it would be without it, at beta = 0: drift that the
    correction removes is none.
    """
    total = torch.zeros(3, dtype=torch.float64, device=s.checks.device)
    for part in s.parts:
        if part.noise is None:
            continue
        ahead = part.old
        if s.method.corrected:
            ahead = track(s, part, c=replace(s.coefficients, beta=0.0))
        fresh, unvisited = part.values[Point.CURRENT], part.before.unvisited
        total += s.rows.sum_surprises(ahead, fresh, part.noise, part.ids, unvisited)
    return total


def estimate(
    s: Step, b: Weights, z: list[Tensor], gradient: list[Tensor], anchor: list[Tensor] | None
) -> list[Tensor]:
    """Return z_t.

    Args:
        s: the step.
        b: the row of z.
        z: z_{t-1}.
        gradient: the sum over points and blocks, in which the weights of b are folded.
        anchor: H_s.
    """
    keep = 1 - s.coefficients.alpha if s.number > 1 else 0.0
    folded = Weights(current=1.0 if s.single else 1 / s.count, anchor=b.anchor)
    return advance(z, keep, folded, gradient, {}, anchor if b.anchor != 0 else None)
