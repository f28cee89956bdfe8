"""What one step sees: the values of its blocks at each point, and the slopes they are pulled by."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from fcco.kernel.checks import check_ids, check_probe, check_rows, check_same
from fcco.methods.coefficients import Scalar
from fcco.distributed import Share
from fcco.kernel.faults import Faults
from fcco.methods import Method, SlopeAt
from fcco.problem.objective import Objective
from fcco.kernel.oracle import Pull
from fcco.methods.point import Point
from fcco.problem.probe import Probe
from fcco.kernel.rows import rows_of
from fcco.kernel.table import BlockTable

__all__ = ["Observation", "Seen"]


@dataclass
class Seen:
    """The probed blocks of one closure, or of all of them, as seen at each point."""

    blocks: Tensor
    ids: Tensor  # blocks forced into range: a bad id is reported, never followed
    old: Tensor  # u_{t-1}; the fresh value where there is none
    unvisited: Tensor
    samples: Tensor | int
    values: dict[Point, Tensor] = field(default_factory=dict)
    derivative: Tensor | None = None
    """d g(w_t; xi) along w_t - w_{t-1} (single point), if it was taken; (B1, p)."""


class Observation:
    """Collects the probes of a step, micro-batch by micro-batch and point by point.

    ``all`` joins the micro-batches, once every point was evaluated.

    Args:
        objective: the problem.
        method: says where slopes are taken.
        table: u, or None.
        share: the blocks of this rank.
        dtype: of the rows.
        device: of the parameters.

    ``update`` forms u_t of the given rows, for a method whose slopes are taken there. ``fold`` is a
    factor of all gradients, to be applied with 1/B1 where they are made: there is one closure.
    """

    def __init__(
        self,
        objective: Objective,
        method: Method,
        table: BlockTable | None,
        share: Share,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.objective = objective
        self.rows = rows_of(objective)
        self.method = method
        self.table = table
        self.share = share
        self.dtype = dtype
        self.device = device
        self.faults = Faults()
        self.update: Callable[[Seen], Tensor] | None = None
        self.fold: float | None = None
        self._micro: list[Seen] = []

    def respond(
        self, point: Point, weight: Scalar | None, k: int, probe: Probe, derivative: Tensor | None
    ) -> Pull | None:
        """Take in micro-batch k at ``point``; say what to back-propagate for that weight."""
        probe.check(inner_dim=self.objective.inner_dim, device=self.device)
        values = self.rows.of(probe, self.dtype)
        if k == len(self._micro):
            self._micro.append(self._first_look(probe))
        micro = self._micro[k]
        if micro.values:
            check_same(self.faults, probe, micro.blocks, next(iter(micro.values)), point)
        check_probe(self.faults, probe, point)
        micro.values[point] = values
        if point is Point.CURRENT or len(micro.values) == 1:
            # A row first visited now has its fresh value in every generation.
            fresh = self.rows.project(values, micro.ids)
            micro.old = torch.where(micro.unvisited, fresh, micro.old)
        if derivative is not None:
            micro.derivative = derivative.to(self.dtype)
        if weight is None:
            return None
        slopes = self.rows.pull(
            self._slope_rows(point, micro, probe),
            values,
            micro.ids,
            # An independent pair is unbiased as it is.
            supported=self.method.slope_at is not SlopeAt.PAIR,
        )
        check_rows(
            self.faults, slopes, micro.blocks, f"slope of f at the {point.value} point (feasible?)"
        )
        # A micro-batch's loss counts by its share of the blocks, so that mean losses add up to
        # the mean loss; the common 1/B1 is applied when all micro-batches were seen.
        count = len(micro.blocks)
        if self.fold is not None:
            weight = weight * self.fold / count
        weight = weight * self.share.weight
        return Pull(slopes * weight, loss=float(weight) * count)

    def _first_look(self, probe: Probe) -> Seen:
        ids = check_ids(self.faults, probe.blocks, self.share)
        if self.table is None:
            unvisited = torch.ones_like(ids, dtype=torch.bool).unsqueeze(1)
            old = torch.zeros((len(ids), self.rows.width), dtype=self.dtype, device=self.device)
        else:
            unvisited, old = self.table.unvisited(ids), self.table.gather(ids)
        return Seen(probe.blocks, ids, old, unvisited, probe.samples)

    def _slope_rows(self, point: Point, micro: Seen, probe: Probe) -> Tensor:
        """Where the slopes of ``point`` are taken: u_{t-1}, u_{t-2}, the snapshot's u, or fresh."""
        match self.method.slope_at:
            case SlopeAt.PAIR:
                if probe.pair is None:
                    raise ValueError(
                        f"{self.method.name} needs Probe.pair, values of a second, independent "
                        "inner sample"
                    )
                return self.rows.of(replace(probe, values=probe.pair), self.dtype)
            case SlopeAt.VALUE:
                return self.rows.project(micro.values[point], micro.ids)
            case SlopeAt.UPDATED:
                # One generation later than the table's: u_t at w_t, u_{t-1} at w_{t-1}.
                if point is Point.CURRENT and self.update is not None:
                    return self.update(micro)
                return micro.old
            case SlopeAt.TABLE:
                if self.table is None or not self.method.recalls(point):
                    return micro.old
                return torch.where(micro.unvisited, micro.old, self.table.gather(micro.ids, point))

    @cached_property
    def all(self) -> Seen:
        """The micro-batches as one."""
        if len(self._micro) == 1:
            return self._micro[0]
        derivatives = [m.derivative for m in self._micro if m.derivative is not None]
        return Seen(
            torch.cat([m.blocks for m in self._micro]),
            torch.cat([m.ids for m in self._micro]),
            torch.cat([m.old for m in self._micro]),
            torch.cat([m.unvisited for m in self._micro]),
            self.samples,
            {p: torch.cat([m.values[p] for m in self._micro]) for p in self._micro[0].values},
            torch.cat(derivatives) if derivatives else None,
        )

    @property
    def ids(self) -> Tensor:
        """The blocks probed so far, forced into range."""
        if len(self._micro) == 1:
            return self._micro[0].ids
        return torch.cat([micro.ids for micro in self._micro])

    def has(self, point: Point) -> bool:
        """Whether ``point`` was evaluated."""
        return point in self._micro[0].values

    @property
    def count(self) -> int:
        """The blocks probed, of this rank's B1 / size."""
        return sum(len(micro.blocks) for micro in self._micro)

    @property
    def samples(self) -> Tensor | int:
        """Inner samples behind one pass over all micro-batches; a tensor if a probe gave one."""
        return sum(
            micro.samples.sum()
            if isinstance(micro.samples, Tensor)
            else micro.samples * len(micro.blocks)
            for micro in self._micro
        )
