"""One step of both recursions: computed and checked, but not yet committed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fcco.checks import check_distinct, check_rows, check_z
from fcco.coefficients import Coefficients, Weights, gamma_age, gamma_storm, gamma_theory
from fcco.distributed import Ranks
from fcco.methods import SlopeAt
from fcco.optim.agreement import agree
from fcco.optim.observation import Observation, Seen
from fcco.oracle import Oracle
from fcco.point import Point
from fcco.probe import Closure
from fcco.recursion import advance
from fcco.safeguard import ChangeBound
from fcco.updates.update import global_norm

__all__ = ["Estimation", "Proposal"]

States = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Proposal:
    """What a step found: u_t on the probed rows, z_t, and what they cost."""

    blocks: Tensor
    old: Tensor
    rows: Tensor
    zs: list[Tensor]
    received: list[bool]
    objective: Tensor
    values: int
    gradients: int


class Estimation:
    """Forms u_t and z_t from the closures of one step.

    Args:
        seen: where the observations of this step are collected.
        coefficients: of this step.
        step: t, from 1.
        coincide: points that lie where the model stands, and are not evaluated again.
        safeguard: bounds the change of the gradient, or None.
        ranks: the processes that share the blocks.
    """

    def __init__(
        self,
        seen: Observation,
        coefficients: Coefficients,
        *,
        step: int,
        coincide: set[Point],
        safeguard: ChangeBound | None,
        ranks: Ranks,
    ) -> None:
        self.seen = seen
        self.c = coefficients
        self.ranks = ranks
        self.step = step
        self.coincide = coincide
        self.safeguard = safeguard
        row = self._without_coinciding(seen.method.gradient(coefficients.alpha))
        self.gradient_row = row.at_start() if step == 1 else row
        self.keep = 0.0 if step == 1 else 1 - coefficients.alpha

    def run(
        self,
        oracle: Oracle,
        closures: Sequence[Closure],
        params: Sequence[Tensor],
        states: States,
    ) -> Proposal:
        """Evaluate every point the weights ask for, form u_t and z_t, and check them."""
        # Gradients of all points accumulate in the one .grad, weights folded into the cotangent,
        # unless they must be seen apart: to be combined in a wider type, or compared.
        narrow = any(p.dtype != s["z"].dtype for p, s in zip(params, states, strict=True))
        pulled = self.gradient_row.points()
        apart = narrow or (self.safeguard is not None and Point.PREVIOUS in pulled)
        gradients: dict[Point, list[Tensor]] = {}

        def evaluate(point: Point, gradient: bool, direction: list[Tensor] | None = None) -> None:
            weight = (1.0 if apart else self.gradient_row.at(point)) if gradient else None
            if apart and gradient:
                gradients[point] = [torch.zeros_like(s["z"]) for s in states]
            oracle.evaluate(
                closures,
                lambda k, probe, slant: self.seen.respond(point, weight, k, probe, slant),
                at=None if point is Point.CURRENT else [s[point.value] for s in states],
                gradient=gradient,
                direction=direction,
                into=gradients.get(point),
                last=oracle.gradient_passes == len(pulled - {Point.CURRENT}),
            )

        if self.seen.method.slope_at is SlopeAt.UPDATED:
            # u_t must be known when slopes are taken at w_t, so what it needs comes first.
            self.seen.update = lambda part: self._rows(part, self._inner_row(part.ids))
            for point in sorted(pulled | self._ahead(), key=lambda point: point.value):
                evaluate(point, point in pulled)
        evaluate(Point.CURRENT, True, self._direction(params, states))
        inner_row = self._inner_row(self.seen.ids)
        looked_at = inner_row.points() if inner_row else set()
        if self.seen.method.single_point:
            looked_at -= {Point.PREVIOUS}
        for point in (Point.PREVIOUS, Point.SNAPSHOT):
            if point in pulled | looked_at and not self.seen.has(point):
                evaluate(point, point in pulled)

        part = self.seen.all
        check_distinct(self.seen.faults, part.blocks)
        zs = self._z_apart(gradients, states) if apart else self._z_fused(params, states)
        rows = self._rows(part, inner_row)
        check_rows(self.seen.faults, rows, part.blocks, "u")
        check_z(self.seen.faults, zs)
        mean = self.seen.rows.outer(rows, part.ids).mean()
        samples, objective = agree(self.seen, self.ranks, mean)
        method = self.seen.method
        return Proposal(
            blocks=part.blocks,
            old=part.old,
            rows=rows,
            zs=zs,
            received=oracle.received,
            objective=objective,
            values=samples * oracle.value_passes * (2 if method.slope_at is SlopeAt.PAIR else 1),
            gradients=samples * oracle.gradient_passes,
        )

    def _direction(self, params: Sequence[Tensor], states: States) -> list[Tensor] | None:
        """w_t - w_{t-1}, for the single-point variant when its correction does not vanish."""
        if not self.seen.method.single_point or Point.PREVIOUS in self.coincide or self._vanishes:
            return None
        return [p - s["previous"] for p, s in zip(params, states, strict=True)]

    @property
    def _vanishes(self) -> bool:
        """Whether gamma is 0, whichever blocks are probed."""
        return bool(self.c.gamma == 0 or (self.c.beta == 1 and self.c.gamma in ("storm", "age")))

    def _ahead(self) -> set[Point]:
        """The further points u_t needs, which are known before the blocks are."""
        inner = self.seen.method.inner
        if inner is None or self._vanishes:
            return set()
        return self._without_coinciding(inner(self.c.beta, 1.0, 1.0)).points()

    def _without_coinciding(self, row: Weights) -> Weights:
        for point in self.coincide:
            row = row.without(point)
        return row

    def _inner_row(self, ids: Tensor) -> Weights | None:
        """The weights of u on the rows ``ids``, gamma resolved now that they are known."""
        method, table = self.seen.method, self.seen.table
        if method.inner is None or table is None:
            return None
        gamma, beta = self.c.gamma, self.c.beta
        num_blocks, count = self.seen.share.total, self.seen.count * self.ranks.size
        if gamma == "theory":
            gamma = gamma_theory(beta, num_blocks, count)
        elif gamma == "age" and beta < 1:
            age = table.age(ids, self.step)
            gamma = gamma_age(self.c.alpha, beta, age).to(table.dtype)
        elif isinstance(gamma, str):
            gamma = gamma_storm(beta)
        return self._without_coinciding(method.inner(beta, gamma, num_blocks / count))

    def _rows(self, part: Seen, row: Weights | None) -> Tensor:
        """u_t on probed rows; without a table, the fresh values."""
        seen, table = self.seen, self.seen.table
        if row is None or table is None:
            return part.old
        points = row.points()
        rows = seen.rows.advance(
            part.old,
            1 - self.c.beta,
            row,
            part.values[Point.CURRENT],
            {point: values for point, values in part.values.items() if point in points},
            part.derivative,
            table.anchor(part.ids),
        )
        rows = torch.where(part.unvisited, part.old, rows)
        return seen.rows.project(rows, part.ids)

    def _z_fused(self, params: Sequence[Tensor], states: States) -> list[Tensor]:
        """z_t from the weighted sum that the points left in ``.grad``.

        Out of place: ``.grad`` may be a view into a bucket that DDP will use again.
        """
        zs = []
        for p, state in zip(params, states, strict=True):
            z = state["z"] * self.keep
            if p.grad is not None:
                z.add_(p.grad, alpha=1 / self.seen.count)
            if self.gradient_row.anchor != 0:
                z.add_(state["anchor"], alpha=float(self.gradient_row.anchor))
            zs.append(z)
        return zs

    def _z_apart(self, gradients: dict[Point, list[Tensor]], states: States) -> list[Tensor]:
        """z_t from the gradients of each point."""
        for sums in gradients.values():
            torch._foreach_mul_(sums, 1 / self.seen.count)
        current = gradients.pop(Point.CURRENT)
        changes = {p: torch._foreach_sub(current, there) for p, there in gradients.items()}
        row = self.gradient_row
        if self.safeguard is not None and Point.PREVIOUS in changes:
            change = global_norm(changes[Point.PREVIOUS])
            damp = self.safeguard.scale(self.c.alpha, global_norm(current), change)
            row = replace(row, since_previous=row.since_previous * damp)
        return [
            advance(
                state["z"],
                self.keep,
                row,
                current[j],
                {point: change[j] for point, change in changes.items()},
                state.get("anchor"),
            )
            for j, state in enumerate(states)
        ]
