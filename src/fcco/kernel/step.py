"""One step of every method, from top to bottom.

    u_t = (1-beta)  u_{t-1} + a.current g(w_t) + sum_p a.since[p] (g(w_t) - g(p)) + a.anchor g(w_s)
    z_t = (1-alpha) z_{t-1} + b.current G(w_t) + sum_p b.since[p] (G(w_t) - G(p)) + b.anchor H_s

for the probed rows of u. a and b are the method's rows, p runs over w_{t-1} and the snapshot w_s,

    G(p) = (1/B1) sum_i grad g_i(p; xi)^T grad f_i(slope row of i at p).

``take`` visits the points; at each of them ``look`` says what is seen: rows, and slopes to
back-propagate. ``track`` forms u_t and ``estimate`` z_t. All four change nothing but the record of
this step: committing it is the caller's (``fcco.optim``, ``fcco_lab.rates``).
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from fcco.kernel.checks import Checks
from fcco.kernel.oracle import Pull, Visits
from fcco.kernel.recursion import advance
from fcco.kernel.rows import Rows
from fcco.kernel.table import BlockTable, Remembered
from fcco.methods import (
    Coefficients,
    Method,
    Point,
    SlopeAt,
    Weights,
)
from fcco.problem import Probe

__all__ = ["Part", "Step", "estimate", "look", "surprises", "take", "track"]

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
    table: BlockTable | None
    dtype: torch.dtype
    num_blocks: int
    ranks: int
    checks: Checks
    single: bool = False
    weights: dict[Point, float] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    count: int = 0

    def probed(self) -> tuple[Tensor, Tensor]:
        """The probed blocks, and u_{t-1} on them."""
        if len(self.parts) == 1:
            return self.parts[0].ids, self.parts[0].old
        return torch.cat([p.ids for p in self.parts]), torch.cat([p.old for p in self.parts])


def take(
    s: Step, oracle: Visits, z: list[Tensor], anchor: list[Tensor] | None
) -> tuple[Tensor, list[Tensor]]:
    """u_t on the probed rows and z_t, from one sample that the oracle shows at every point.

    Args:
        s: the step, with nothing seen yet.
        oracle: visits the points, and adds up the gradients with their weights.
        z: z_{t-1} for every parameter.
        anchor: H_s for every parameter, or None.
    """
    method, c = s.method, s.coefficients
    b = method.gradient.weights(c.alpha) if s.number > 1 else _FIRST[method.anchored]
    pulled = [p for p in method.gradient.points if p not in s.coincide and b.since(p) != 0]
    s.weights = b.at_points(pulled)
    corrected = method.corrected and c.corrects and Point.PREVIOUS not in s.coincide
    points = [p for p in method.points if p in pulled or _tracked(s, p, corrected)]
    # A row's first value is the fresh one at w_t, so w_t comes first. But where slopes are taken at
    # u_t it comes last: by then all that u_t needs was seen.
    points.insert(len(points) if method.slope_at is SlopeAt.UPDATED else 0, Point.CURRENT)
    final = max(map(points.index, s.weights))
    for k, p in enumerate(points):
        oracle.visit(
            p,
            partial(look, s),
            weight=s.weights.get(p),
            tangent=method.single_point and corrected and p is Point.CURRENT,
            last=k == final,
        )
    if method.corrected and c.gamma == "theory":
        c.check_gamma(s.num_blocks, s.count * s.ranks)
    u = [track(s, part) if part.new is None else part.new for part in s.parts]
    z = estimate(s, b, z, oracle.gradient(b), anchor)
    return u[0] if len(u) == 1 else torch.cat(u), z


def _tracked(s: Step, point: Point, corrected: bool) -> bool:
    """Whether u needs the value at ``point``."""
    inner = s.method.inner
    if inner is None or point not in inner.points or point in s.coincide:
        return False
    by_gamma = inner.corrected and point is Point.PREVIOUS
    return not by_gamma or (corrected and not s.method.single_point)


def look(
    s: Step, point: Point, k: int, probe: Probe, derivative: Tensor | None = None
) -> Pull | None:
    """Closure k at ``point``: note its values; if z needs them, take the slopes of G(point)."""
    ids = s.checks.probe(point, k, probe)
    values = s.rows.of(probe, s.dtype)
    if k == len(s.parts):
        s.parts.append(Part(ids, s.table.recall(ids) if s.table is not None else _nothing(values)))
        s.count += len(ids)
    part = s.parts[k]
    if point is Point.CURRENT or Point.CURRENT not in part.values:
        # A row first visited now has its fresh value, in every generation.
        fresh = s.rows.project(values, ids)
        part.old = torch.where(part.before.unvisited, fresh, part.before.old)
    if point is Point.CURRENT and probe.noise is not None:
        part.noise = probe.noise.detach().to(s.dtype)
    part.values[point] = values
    if derivative is not None:
        part.derivative = derivative.to(s.dtype)
    if point not in s.weights:
        return None
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
            u = s.rows.of(probe, s.dtype, pair=True)
    slopes = s.rows.slopes(u, values, ids, supported=s.method.slope_at is not SlopeAt.PAIR)
    s.checks.rows(slopes, ids, f"slope of f at the {point.value} point (feasible?)")
    if s.single:
        return Pull(slopes / len(ids), loss=1)
    # A closure's loss counts by its share of the blocks, so that mean losses give the mean loss.
    return Pull(slopes, loss=len(ids))


def _nothing(values: Tensor) -> Remembered:
    """What a method without a table knows."""
    return Remembered(values, torch.ones_like(values[:, :1], dtype=torch.bool), None, None)


def track(
    s: Step, part: Part, point: Point = Point.CURRENT, c: Coefficients | None = None
) -> Tensor:
    """u as this step's sample updates it at ``point``: u_t at w_t.

    At w_{t-1}, for updated slopes, no correction is left: (1 - beta) u_{t-1} + beta g(w_{t-1}; xi).
    ``c`` stands for other coefficients than those of the step.
    """
    inner, c, seen = s.method.inner, c or s.coefficients, part.values
    if inner is None:
        return part.old
    further = {p: seen[p] for p in inner.points if p in seen and point is Point.CURRENT}
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
    anchor = part.before.anchor
    u = s.rows.advance(part.old, keep, a, seen[point], further, part.derivative, anchor)
    return s.rows.project(torch.where(part.before.unvisited, part.old, u), part.ids)


def surprises(s: Step) -> Tensor:
    """What the gain learns from a step, (3,): see ``fcco.methods.next_gain``.

    A fresh value is compared with the row as it would be without it, at beta = 0: drift that the
    correction removes is none. Rows visited for the first time, or whose noise is not known, do
    not count.
    """
    total = torch.zeros(3, dtype=torch.float64, device=s.checks.device)
    for part in s.parts:
        if part.noise is None:
            continue
        ahead, fresh = part.old, part.values[Point.CURRENT]
        if s.method.corrected:
            ahead = track(s, part, c=replace(s.coefficients, beta=0.0))
        both = torch.stack(s.rows.surprise(ahead, fresh, part.noise, part.ids)).double()
        squares = both.square().sum(2)
        known = squares.isfinite().all(0) & ~part.before.unvisited.squeeze(1)
        squares = squares.where(known, 0).sum(1)
        total += torch.cat([known.sum().view(1), squares])
    return total


def estimate(
    s: Step, b: Weights, z: list[Tensor], gradient: list[Tensor], anchor: list[Tensor] | None
) -> list[Tensor]:
    """z_t; ``gradient`` is the sum over points and blocks in which the weights of b are folded."""
    keep = 1 - s.coefficients.alpha if s.number > 1 else 0.0
    folded = Weights(current=1.0 if s.single else 1 / s.count, anchor=b.anchor)
    return advance(z, keep, folded, gradient, {}, anchor if b.anchor != 0 else None)
