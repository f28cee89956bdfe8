"""The exact pass of version 3: inner values of all blocks and the full gradient, in chunks."""

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from fcco.distributed import Ranks, Share
from fcco.kernel.agreement import equally_many
from fcco.kernel.checks import Checks
from fcco.kernel.oracle import Oracle, Pull
from fcco.kernel.rows import Rows
from fcco.kernel.sums import RowSums
from fcco.methods.point import Point
from fcco.methods.weights import Weights
from fcco.problem import Objective, Probe

__all__ = ["Exact", "ExactPass"]

PIECE = 2**16
"""Blocks whose sums ranks exchange at a time."""


@dataclass(frozen=True)
class Exact:
    """g_i(w) of every block, H = (1/m) sum_i grad g_i(w)^T grad f_i(u^i), and what they cost."""

    inner: Tensor
    samples: Tensor
    gradients: list[Tensor]
    value_queries: int
    gradient_queries: int


class ExactPass:
    """Sums chunks, weighing each block's values by the samples behind them.

    Gradients need a block's total (and, where slopes are taken at the exact values, these too)
    before its first chunk is back-propagated. One sweep is enough when each block lies in one
    chunk, or when slopes and totals are known from before; otherwise a second sweep follows.

    With several ranks the chunks are spread over them in any way, equally many on each. What they
    sum is O(m) numbers on every rank, for as long as the pass takes.

    Args:
        objective: the problem.
        format: of its rows.
        chunks: how many closures this rank has.
        ranks: the processes that share the pass.
        rows: u of all blocks, where slopes are taken; None: at the exact values.
        project: bring exact values into the domain first, as a table does.
        totals: samples of each block as the last exact pass found them, or None.
    """

    def __init__(
        self,
        objective: Objective,
        format: Rows,
        chunks: int,
        *,
        ranks: Ranks,
        rows: Tensor | None,
        project: bool,
        totals: Tensor | None,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.objective = objective
        self.format = format
        self.chunks = chunks
        self.ranks = ranks
        self.rows = rows
        self.project = project
        self.known = None if rows is None else totals
        self.dtype = dtype
        self.device = device
        self.sums = RowSums(format, objective.num_blocks, dtype, device)
        self.value_queries = 0
        self.gradient_queries = 0
        self.spoiled = False

    def run(self, oracle: Oracle) -> Exact:
        """Sweep once or twice; the oracle keeps gradients apart and leaves no trace."""
        device = self.device
        equally_many(self.chunks, self.ranks, device, "in an exact pass ranks sum chunk by chunk")
        oracle.visit(Point.CURRENT, self._look)
        samples = self._joined()
        missing = (samples == 0).nonzero().flatten()
        if len(missing):
            raise ValueError(
                f"the exact pass met no sample of {len(missing)} blocks, the first of them "
                f"{missing[:10].tolist()}: it must cover every block"
            )
        exact = self.sums.means()
        if self.spoiled or (self.known is not None and not torch.equal(self.known, samples)):
            self.rows = exact if self.rows is None else self.rows
            self.known, self.spoiled = samples, False
            self.sums = RowSums(self.format, self.objective.num_blocks, self.dtype, device)
            oracle.forget()
            oracle.visit(Point.CURRENT, self._look)
            if not torch.equal(self._joined(), samples):
                raise ValueError(
                    "the closures of an exact pass gave other samples when called again: they must "
                    "be deterministic given the RNG state"
                )
        gradients = oracle.gradient(Weights(current=1.0))
        checks = Checks(Share(self.objective.num_blocks), self.objective.inner_dim, device)
        checks.finite(gradients, "z")
        self.ranks.together(device, checks.settle)
        asked = torch.tensor([self.value_queries, self.gradient_queries], device=device)
        values, pulls = self.ranks.sum(asked).tolist()
        return Exact(exact, samples, gradients, values, pulls)

    def _joined(self) -> Tensor:
        """The samples of every block on all ranks; ``sums`` become those over all ranks."""
        sums = self.sums
        if self.ranks.size == 1:
            return sums.samples
        samples = self.ranks.sum(sums.samples.clone())
        # A block that another rank met too was taken for whole here.
        split = ((sums.samples != 0) & (sums.samples != samples)).any()
        unknown = self.known is None and bool(split)
        self.spoiled = self.ranks.any(self.spoiled or unknown, samples.device)
        for piece in sums.rows.split(PIECE):
            piece.copy_(reduce(self.format.add, self.ranks.gather(piece)))
        sums.samples = samples
        return samples

    def _look(self, point: Point, k: int, probe: Probe, derivative: Tensor | None) -> Pull | None:
        objective, device = self.objective, self.device
        checks = Checks(Share(objective.num_blocks), objective.inner_dim, device)
        checks.probe(Point.SNAPSHOT, 0, probe)
        checks.distinct(probe.blocks)
        counts = probe.samples_per_row()
        total = self.ranks.together(device, lambda: checks.settle(counts.sum()))
        values = self.format.of(probe, self.dtype)
        met = bool(self.sums.samples[probe.blocks].any())
        self.sums.add(probe.blocks, values, counts)
        self.value_queries += total
        if self.known is None:
            # Each chunk is taken to hold its blocks whole until one is met again. A loss would
            # need its share of all samples, so with several chunks it waits for them too.
            chunks = self.ranks.size * self.chunks
            self.spoiled |= met or (probe.loss is not None and chunks > 1)
            fraction, of_all = torch.ones_like(values[:, 0]), 1.0
        else:
            fraction = counts.to(self.dtype) / self.known[probe.blocks]
            of_all = total / int(self.known.sum())
        if self.spoiled and not self.ranks.reduction.active:
            # Where others are, all pass backward together: they do not know yet, and what is
            # held back must be reduced.
            return None
        u = values if self.rows is None else self.rows[probe.blocks]
        if self.project:
            u = self.format.project(u, probe.blocks)
        slopes = self.format.slopes(u, values, probe.blocks, supported=True)
        checks.rows(slopes, probe.blocks, "slope of f in an exact pass (feasible?)")
        self.ranks.together(device, lambda: None if self.spoiled else checks.settle())
        self.gradient_queries += total
        # The gradients of several ranks are averaged, and here the sum is wanted.
        factor = self.ranks.size / objective.num_blocks
        return Pull(slopes * fraction.unsqueeze(1) * factor, loss=of_all * self.ranks.size)
