"""The computation of one step, which is the same code for every method.

    u_t = (1-beta)  u_{t-1} + a.current g(w_t) + sum_p a.since[p] (g(w_t) - g(p)) + a.anchor g(w_s)
    z_t = (1-alpha) z_{t-1} + b.current G(w_t) + sum_p b.since[p] (G(w_t) - G(p)) + b.anchor H_s

The first line holds for the probed rows of u. Here a and b are the method's two rows of weights,
p runs over w_{t-1} and the snapshot w_s, and

    G(p) = (1/B1) sum_i grad g_i(p; xi)^T grad f_i(slope row of i at p).

``take`` visits the points. At each point it observes the values, computes the slopes, and
back-propagates them at once. ``track`` computes u_t and ``estimate`` computes z_t. Nothing changes
here but the record of this step; the optimizer writes the results.
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
"""Row of z at the first step: z_1 = G(w_1), or z_1 = H for an anchored method."""


@dataclass
class Part:
    """The rows that one closure probed, with their values at each point."""

    ids: Tensor
    before: Remembered
    values: dict[Point, Tensor] = field(default_factory=dict)
    old: Tensor = field(init=False)  # u_{t-1}, or the fresh value for a row without one
    derivative: Tensor | None = None  # derivative of g(w_t; xi) along w_t - w_{t-1} (single point)
    noise: Tensor | None = None  # standard error of g(w_t; xi)
    new: Tensor | None = None  # u_t, once it is known


@dataclass
class Step:
    """The record of one step: its inputs, and what was observed so far.

    Args:
        method: the method: two rows of weights, and where slopes are taken.
        coefficients: alpha, beta and gamma of this step.
        number: t, counted from 1.
        coincide: the points that equal the current one, and are not evaluated again.
        rows: the format of a row of the table.
        table: u_{t-1} and its older generations, or None.
        dtype: the precision of the rows.
        num_blocks: m, the number of blocks of all ranks.
        ranks: the number of processes, each of which probes equally many blocks.
        checks: the collection of checks.
        single: whether there is one closure on one rank. B1 is then known when slopes are computed,
            and the cotangents are those of the mean. Otherwise gradients are divided by B1 at the
            end, because ranks may differ in the number of their closures.

    ``weights`` are the weights of the gradients in z, and ``count`` is B1 of this rank.
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
        s: the step, without any observation yet.
        oracle: the oracle, which evaluates the sample of this step at each point and adds up the
            gradients.
        z: z_{t-1} of every parameter.
        anchor: H_s of every parameter, or None.
    """
    method, c = s.method, s.coefficients
    b = method.gradient.weights(c.alpha) if s.number > 1 else _FIRST[method.anchored]
    # A gradient of weight 0, or of a point that equals the current one, would add nothing.
    with_gradient = [p for p in method.gradient.points if p not in s.coincide and b.since(p) != 0]
    s.weights = b.at_points(with_gradient)
    corrected = method.corrected and c.corrects and Point.PREVIOUS not in s.coincide
    points = [p for p in method.points if p in with_gradient or _tracked(s, p, corrected)]
    # w_t comes first, because the first value of a row is the fresh one at w_t. But if slopes are
    # taken at u_t, then w_t comes last, when everything that u_t needs has been observed.
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
                    # The sum is divided by the number of blocks at the end. So a closure's mean
                    # loss counts by the number of its blocks.
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
    """Check and record what closure k reported at ``point``."""
    ids = s.checks.probe(point, k, probe)
    values = s.rows.read(probe, s.dtype)
    if k == len(s.parts):
        s.parts.append(Part(ids, s.table.recall(ids) if s.table is not None else _nothing(values)))
        s.count += len(ids)
    part = s.parts[k]
    if point is Point.CURRENT or Point.CURRENT not in part.values:
        # A row that is visited for the first time has its fresh value in every generation. With
        # updated slopes w_t comes last, and until then the value at the first point is used.
        fresh = s.rows.project(values, ids)
        part.old = torch.where(part.before.unvisited, fresh, part.before.old)
    if point is Point.CURRENT and probe.noise is not None:
        # A copy, because the closure may write the noise of the next point into the same tensor.
        part.noise = probe.noise.detach().to(s.dtype, copy=True)
    part.values[point] = values
    if derivative is not None:
        part.derivative = derivative.to(s.dtype)
    return part


def _nothing(values: Tensor) -> Remembered:
    """Return the record of a method without a table, in which no row was visited."""
    return Remembered(values, torch.ones_like(values[:, :1], dtype=torch.bool), None, None)


def _take_slopes(s: Step, point: Point, part: Part, probe: Probe) -> Tensor:
    """Return the slopes of f for G(point), one row per probed block."""
    ids, values = part.ids, part.values[point]
    match s.method.slope_at:
        # u_{t-2} at w_{t-1} and the rows of the snapshot at w_s; older rows of a block that is new
        # have no meaning, so its first value is used.
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
    """Return the rows updated with this step's sample at ``point``; at w_t this is u_t.

    At a further point, which updated slopes need, there is no change since that point. What remains
    is (1 - beta) u_{t-1} + a.current g(point; xi) + a.anchor g(w_s).

    Args:
        s: the step.
        part: the rows of one closure.
        point: the point whose values are used.
        c: coefficients to use instead of those of the step.
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
    # A first visit takes the fresh value as it is, without a correction.
    return s.rows.project(torch.where(part.before.unvisited, part.old, u), part.ids)


def sum_surprises(s: Step) -> Tensor:
    """Return the sums from which the gain is chosen, (3,), see ``fcco.methods.next_gain``.

    A fresh value is compared with the row as it would be at beta = 0, with the correction alone.
    So drift that the correction removes does not count. At beta = 1 the correction has the weight 0
    and its point is not evaluated, so all drift counts.
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
        b: the method's row of weights for z.
        z: z_{t-1} of every parameter.
        gradient: the sum over points and blocks, which includes the weights of b.
        anchor: H_s of every parameter, or None.
    """
    keep = 1 - s.coefficients.alpha if s.number > 1 else 0.0
    folded = Weights(current=1.0 if s.single else 1 / s.count, anchor=b.anchor)
    return advance(z, keep, folded, gradient, {}, anchor if b.anchor != 0 else None)
