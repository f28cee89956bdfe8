"""One step of both recursions: computed and checked, but not yet committed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fcco.kernel.checks import check_distinct, check_rows, check_z
from fcco.methods.coefficients import Coefficients, Weights, gamma_age, gamma_storm, gamma_theory
from fcco.distributed import Ranks
from fcco.methods import SlopeAt
from fcco.optim.agreement import agree
from fcco.optim.observation import Observation, Seen
from fcco.kernel.oracle import Oracle
from fcco.methods.point import Point
from fcco.problem.probe import Closure
from fcco.kernel.safeguard import ChangeBound
from fcco.distributed.sharded import global_norm, is_sharded, like, local

__all__ = ["Estimation", "Proposal"]

States = Sequence[dict[str, Any]]

Term = tuple[list[Tensor], float]
"""A tensor for every parameter (its local part, if it is sharded), and the weight of them all."""


@dataclass(frozen=True)
class Proposal:
    """What a step found: u_t on the probed rows, z_t = keep z_{t-1} + terms, and what they cost."""

    blocks: Tensor
    old: Tensor
    rows: Tensor
    keep: float
    terms: list[Term]
    received: list[bool]
    objective: Tensor
    values: int
    gradients: int

    def write_z(self, states: States) -> None:
        """Replace z_{t-1} by z_t.

        In place, so that no memory is asked for; ``.grad``, which may be a view into a bucket that
        DDP will use again, is only read.
        """
        zs = [local(state["z"]) for state in states]
        terms = list(self.terms)
        if terms[0][1] == 1 - self.keep:
            torch._foreach_lerp_(zs, *terms.pop(0))  # one pass over memory instead of two
        else:
            torch._foreach_mul_(zs, self.keep)
        for tensors, weight in terms:
            torch._foreach_add_(zs, tensors, alpha=weight)


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
        if len(closures) == 1 and not apart and self.keep < 1:
            self.seen.fold = 1 / (1 - self.keep)
        gradients: dict[Point, list[Tensor]] = {}

        def evaluate(point: Point, gradient: bool, direction: list[Tensor] | None = None) -> None:
            weight = (1.0 if apart else self.gradient_row.at(point)) if gradient else None
            if apart and gradient:
                gradients[point] = [torch.zeros_like(local(s["z"])) for s in states]
            oracle.evaluate(
                closures,
                lambda k, probe, slant: self.seen.respond(point, weight, k, probe, slant),
                at=None if point is Point.CURRENT else [s[point.value] for s in states],
                gradient=gradient,
                direction=direction,
                into=gradients.get(point),
                last=oracle.gradient_passes == len(pulled),
            )

        direction = self._direction(params, states)
        if self.seen.method.slope_at is SlopeAt.UPDATED:
            # u_t must be known when slopes are taken at w_t, so what it needs comes first.
            self.seen.update = lambda part: self._rows(part, self._inner_row(part.ids))
            for point in sorted(pulled | self._ahead(), key=lambda point: point.value):
                evaluate(point, point in pulled)
        evaluate(Point.CURRENT, True, direction)
        inner_row = self._inner_row(self.seen.ids)
        looked_at = inner_row.points() if inner_row else set()
        if self.seen.method.single_point:
            looked_at -= {Point.PREVIOUS}
        for point in (Point.PREVIOUS, Point.SNAPSHOT):
            if point in pulled | looked_at and not self.seen.has(point):
                evaluate(point, point in pulled)

        part = self.seen.all
        check_distinct(self.seen.faults, part.blocks)
        terms = self._apart(gradients, states) if apart else self._fused(params, states)
        rows = self._rows(part, inner_row)
        check_rows(self.seen.faults, rows, part.blocks, "u")
        check_z(self.seen.faults, [local(s["z"]) for s in states], self.keep, terms)
        mean = self.seen.rows.outer(rows, part.ids).mean()
        samples, objective = agree(self.seen, self.ranks, mean)
        method = self.seen.method
        return Proposal(
            blocks=part.blocks,
            old=part.old,
            rows=rows,
            keep=self.keep,
            terms=terms,
            received=oracle.received,
            objective=objective,
            values=samples * oracle.value_passes * (2 if method.slope_at is SlopeAt.PAIR else 1),
            gradients=samples * oracle.gradient_passes,
        )

    def _direction(self, params: Sequence[Tensor], states: States) -> list[Tensor] | None:
        """w_t - w_{t-1}, for the single-point variant when its correction does not vanish."""
        if not self.seen.method.single_point:
            return None
        if any(is_sharded(p) for p in params):
            raise ValueError("single_point=True is not supported with sharded parameters (DTensor)")
        if Point.PREVIOUS in self.coincide or self._vanishes:
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

    def _fused(self, params: Sequence[Tensor], states: States) -> list[Term]:
        """The weighted sum that the points left in ``.grad``, and the anchor."""
        gradients = [
            torch.zeros_like(local(s["z"])) if p.grad is None else local(p.grad)
            for p, s in zip(params, states, strict=True)
        ]
        # Of one closure all factors were folded into the cotangent but the weight of the new.
        weight = 1 / self.seen.count if self.seen.fold is None else 1 - self.keep
        return [(gradients, weight), *self._anchor(states)]

    def _apart(self, gradients: dict[Point, list[Tensor]], states: States) -> list[Term]:
        """The gradient at w_t, its changes since the further points, and the anchor."""
        share, row = 1 / self.seen.count, self.gradient_row
        current = gradients.pop(Point.CURRENT)
        terms: list[Term] = [(current, float(row.current) * share)]
        for point, there in gradients.items():
            change = list(torch._foreach_sub(current, there))
            if self.safeguard is not None and point is Point.PREVIOUS:
                norms = (
                    global_norm([like(part, s["z"]) for part, s in zip(parts, states, strict=True)])
                    for parts in (current, change)
                )
                torch._foreach_mul_(change, self.safeguard.scale(self.c.alpha, *norms))
            terms.append((change, float(row.since(point)) * share))
        return terms + self._anchor(states)

    def _anchor(self, states: States) -> list[Term]:
        weight = float(self.gradient_row.anchor)
        return [([local(s["anchor"]) for s in states], weight)] if weight != 0 else []
