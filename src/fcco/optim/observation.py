"""What one step sees: the values of its blocks at each point, and the slopes they are pulled by."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from fcco.checks import check_ids, check_probe, check_rows, check_same
from fcco.coefficients import Scalar
from fcco.faults import Faults
from fcco.methods import Method, SlopeAt
from fcco.objective import Objective
from fcco.oracle import Pull
from fcco.point import Point
from fcco.probe import Probe
from fcco.rows import rows_of
from fcco.table import BlockTable

__all__ = ["Observation"]


@dataclass
class _MicroBatch:
    """One closure's probe, as seen at w_t and then at the further points."""

    blocks: Tensor
    ids: Tensor  # blocks forced into range: a bad id is reported, never followed
    old: Tensor  # u_{t-1}; the fresh value where there is none
    unvisited: Tensor
    samples: Tensor | int
    values: dict[Point, Tensor] = field(default_factory=dict)
    derivative: Tensor | None = None


class Observation:
    """Collects the probes of a step, micro-batch by micro-batch and point by point.

    The joined tensors (``blocks``, ``old``, ...) may be read once w_t was evaluated.
    """

    def __init__(
        self,
        objective: Objective,
        method: Method,
        table: BlockTable | None,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.objective = objective
        self.rows = rows_of(objective)
        self.method = method
        self.table = table
        self.dtype = dtype
        self.device = device
        self.faults = Faults()
        self._micro: list[_MicroBatch] = []

    def respond(
        self, point: Point, weight: Scalar | None, k: int, probe: Probe, derivative: Tensor | None
    ) -> Pull | None:
        """Take in micro-batch k at ``point``; say what to back-propagate for that weight."""
        probe.check(inner_dim=self.objective.inner_dim, device=self.device)
        values = self.rows.of(probe, self.dtype)
        if point is Point.CURRENT:
            self._micro.append(self._first_look(probe, values))
        micro = self._micro[k]
        if point is not Point.CURRENT:
            check_same(self.faults, probe, micro.blocks, point)
        check_probe(self.faults, probe, point)
        micro.values[point] = values
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
        return Pull(slopes * weight, loss=float(weight) * len(micro.blocks))

    def _first_look(self, probe: Probe, values: Tensor) -> _MicroBatch:
        check_ids(self.faults, probe.blocks, self.objective.num_blocks)
        ids = probe.blocks.clamp(0, self.objective.num_blocks - 1)
        old = self.rows.project(values, ids)
        if self.table is None:
            unvisited = torch.ones_like(values[:, :1], dtype=torch.bool)
        else:
            unvisited = self.table.unvisited(ids)
            old = torch.where(unvisited, old, self.table.gather(ids))
        return _MicroBatch(probe.blocks, ids, old, unvisited, probe.samples)

    def _slope_rows(self, point: Point, micro: _MicroBatch, probe: Probe) -> Tensor:
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
            case SlopeAt.TABLE:
                if self.table is None or not self.method.recalls(point):
                    return micro.old
                # A row first visited now has its fresh value in every generation.
                return torch.where(micro.unvisited, micro.old, self.table.gather(micro.ids, point))

    @cached_property
    def blocks(self) -> Tensor:
        """The probed blocks, as the closures named them."""
        return _join([micro.blocks for micro in self._micro])

    @cached_property
    def ids(self) -> Tensor:
        """The probed blocks, forced into range."""
        return _join([micro.ids for micro in self._micro])

    @cached_property
    def old(self) -> Tensor:
        """u_{t-1} of the probed blocks."""
        return _join([micro.old for micro in self._micro])

    @cached_property
    def unvisited(self) -> Tensor:
        """Which of them had no value before, shape (B1, 1)."""
        return _join([micro.unvisited for micro in self._micro])

    @property
    def count(self) -> int:
        """B1."""
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

    def values(self, point: Point) -> Tensor:
        """Inner values of the probed blocks at ``point``."""
        return _join([micro.values[point] for micro in self._micro])

    def further(self) -> dict[Point, Tensor]:
        """Inner values of the probed blocks at every further point that was looked at."""
        return {p: self.values(p) for p in self._micro[0].values if p is not Point.CURRENT}

    @property
    def derivative(self) -> Tensor | None:
        """d g(w_t; xi) along w_t - w_{t-1} (single point), if it was taken; (B1, p)."""
        parts = [micro.derivative for micro in self._micro if micro.derivative is not None]
        return _join(parts) if parts else None


def _join(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
