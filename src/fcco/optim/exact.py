"""The exact pass of version 3: inner values of all blocks and the full gradient, in chunks."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fcco.checks import check_distinct, check_ids, check_probe, check_rows, check_z
from fcco.faults import Faults
from fcco.objective import Objective
from fcco.oracle import Oracle, Pull
from fcco.point import Point
from fcco.probe import Closure, Probe
from fcco.rows import Rows

__all__ = ["Exact", "ExactPass"]


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

    Args:
        objective: the problem.
        format: of its rows.
        closures: the chunks.
        rows: u, where slopes are taken; None: at the exact values.
        project: bring exact values into the domain first, as a table does.
        totals: samples of each block as the last exact pass found them, or None.
    """

    def __init__(
        self,
        objective: Objective,
        format: Rows,
        closures: Sequence[Closure],
        *,
        rows: Tensor | None,
        project: bool,
        totals: Tensor | None,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.objective = objective
        self.format = format
        self.closures = closures
        self.rows = rows
        self.project = project
        self.known = None if rows is None else totals
        self.sums = torch.zeros((objective.num_blocks, format.width), dtype=dtype, device=device)
        self.totals = torch.zeros(objective.num_blocks, dtype=torch.int64, device=device)
        self.value_queries = 0
        self.gradient_queries = 0
        self.spoiled = False

    def run(self, oracle: Oracle, gradients: list[Tensor]) -> Exact:
        """Sweep once or twice; ``gradients`` are the zero tensors H is summed into."""
        oracle.evaluate(self.closures, self._respond, into=gradients)
        missing = (self.totals == 0).nonzero().flatten()
        if len(missing):
            raise ValueError(
                f"the exact pass met no sample of {len(missing)} blocks, the first of them "
                f"{missing[:10].tolist()}: it must cover every block"
            )
        samples = self.totals
        shares = 1 / samples.to(self.sums.dtype).unsqueeze(1)
        exact = self.format.weigh(self.sums, shares)
        if self.spoiled or (self.known is not None and not torch.equal(self.known, samples)):
            self.rows = exact if self.rows is None else self.rows
            self.known, self.spoiled = samples, False
            self.sums, self.totals = torch.zeros_like(self.sums), torch.zeros_like(samples)
            torch._foreach_zero_(gradients)
            oracle.evaluate(self.closures, self._respond, into=gradients)
            if not torch.equal(self.totals, samples):
                raise ValueError(
                    "the closures of an exact pass gave other samples when called again: they must "
                    "be deterministic given the RNG state"
                )
        faults = Faults()
        check_z(faults, gradients)
        faults.settle()
        return Exact(exact, samples, gradients, self.value_queries, self.gradient_queries)

    def _respond(self, k: int, probe: Probe, derivative: Tensor | None) -> Pull | None:
        objective, device = self.objective, self.totals.device
        probe.check(inner_dim=objective.inner_dim, device=device)
        faults = Faults()
        check_ids(faults, probe.blocks, objective.num_blocks)
        check_distinct(faults, probe.blocks)
        check_probe(faults, probe, Point.SNAPSHOT)
        counts = probe.samples_per_row()
        total = faults.settle(counts.sum())
        values = self.format.of(probe, self.sums.dtype)
        met = bool(self.totals[probe.blocks].any())
        part = self.format.weigh(values, counts.unsqueeze(1).to(values.dtype))
        self.sums[probe.blocks] = self.format.add(self.sums[probe.blocks], part)
        self.totals.index_add_(0, probe.blocks, counts)
        self.value_queries += total
        if self.known is None:
            # Each chunk is taken to hold its blocks whole until one is met again. A loss would
            # need its share of all samples, so with several chunks it waits for them too.
            self.spoiled |= met or (probe.loss is not None and len(self.closures) > 1)
            fraction, share = torch.ones_like(values[:, 0]), 1.0
        else:
            fraction = counts.to(self.sums.dtype) / self.known[probe.blocks]
            share = total / int(self.known.sum())
        if self.spoiled:
            return None
        u = values if self.rows is None else self.rows[probe.blocks]
        if self.project:
            u = self.format.project(u, probe.blocks)
        slopes = self.format.pull(u, values, probe.blocks, supported=True)
        check_rows(faults, slopes, probe.blocks, "slope of f in an exact pass (feasible?)")
        faults.settle()
        self.gradient_queries += total
        return Pull(slopes * fraction.unsqueeze(1) / objective.num_blocks, loss=share)
