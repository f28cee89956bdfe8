"""The exact pass of version 3: inner values of all blocks and the full gradient, in chunks."""

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from fcco.distributed import Ranks, Share
from fcco.kernel.checks import Checks
from fcco.kernel.oracle import Oracle, Pull
from fcco.kernel.rows import Rows
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
        self.sums = torch.zeros((objective.num_blocks, format.width), dtype=dtype, device=device)
        self.totals = torch.zeros(objective.num_blocks, dtype=torch.int64, device=device)
        self.value_queries = 0
        self.gradient_queries = 0
        self.spoiled = False

    def run(self, oracle: Oracle) -> Exact:
        """Sweep once or twice; the oracle keeps gradients apart and leaves no trace."""
        device = self.totals.device
        count = self.ranks.sum(torch.tensor([n := self.chunks, n * n], device=device))
        if count[0] ** 2 != self.ranks.size * count[1]:
            raise ValueError(
                f"an exact pass needs equally many closures on every rank; here it got {n}"
            )
        oracle.visit(Point.CURRENT, self._look)
        samples = self._joined()
        missing = (samples == 0).nonzero().flatten()
        if len(missing):
            raise ValueError(
                f"the exact pass met no sample of {len(missing)} blocks, the first of them "
                f"{missing[:10].tolist()}: it must cover every block"
            )
        shares = 1 / samples.to(self.sums.dtype).unsqueeze(1)
        exact = self.format.weigh(self.sums, shares)
        if self.spoiled or (self.known is not None and not torch.equal(self.known, samples)):
            self.rows = exact if self.rows is None else self.rows
            self.known, self.spoiled = samples, False
            self.sums, self.totals = torch.zeros_like(self.sums), torch.zeros_like(samples)
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
        """The samples of every block on all ranks; ``sums`` becomes the sum over ranks."""
        if self.ranks.size == 1:
            return self.totals
        samples = self.ranks.sum(self.totals.clone())
        # A block that another rank met too was taken for whole here.
        split = ((self.totals != 0) & (self.totals != samples)).any()
        unknown = self.known is None and bool(split)
        self.spoiled = self.ranks.any(self.spoiled or unknown, samples.device)
        for start in range(0, len(self.sums), PIECE):
            piece = self.sums[start : start + PIECE]
            self.sums[start : start + PIECE] = reduce(self.format.add, self.ranks.gather(piece))
        return samples

    def _look(self, point: Point, k: int, probe: Probe, derivative: Tensor | None) -> Pull | None:
        objective, device = self.objective, self.totals.device
        checks = Checks(Share(objective.num_blocks), objective.inner_dim, device)
        checks.probe(Point.SNAPSHOT, 0, probe)
        checks.distinct(probe.blocks)
        counts = probe.samples_per_row()
        total = self.ranks.together(device, lambda: checks.settle(counts.sum()))
        values = self.format.of(probe, self.sums.dtype)
        met = bool(self.totals[probe.blocks].any())
        part = self.format.weigh(values, counts.unsqueeze(1).to(values.dtype))
        self.sums[probe.blocks] = self.format.add(self.sums[probe.blocks], part)
        self.totals.index_add_(0, probe.blocks, counts)
        self.value_queries += total
        if self.known is None:
            # Each chunk is taken to hold its blocks whole until one is met again. A loss would
            # need its share of all samples, so with several chunks it waits for them too.
            chunks = self.ranks.size * self.chunks
            self.spoiled |= met or (probe.loss is not None and chunks > 1)
            fraction, of_all = torch.ones_like(values[:, 0]), 1.0
        else:
            fraction = counts.to(self.sums.dtype) / self.known[probe.blocks]
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
