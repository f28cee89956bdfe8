"""The exact pass of version 3 and SVRG: all inner values, and the full gradient, in chunks."""

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from fcco.distributed import Ranks, Share
from fcco.kernel.agreement import require_equal_counts
from fcco.kernel.checks import Checks
from fcco.kernel.oracle import Oracle
from fcco.kernel.rows import Rows
from fcco.methods.weights import Point, Weights
from fcco.problem import Objective, Probe

__all__ = ["Exact", "ExactPass", "RowSums"]

PIECE = 2**16
"""Number of blocks whose sums the ranks exchange at a time."""


@dataclass(frozen=True)
class Exact:
    """The result of an exact pass.

    ``inner`` holds g_i(w) of every block and ``samples`` the number of its samples. ``gradients``
    is H = (1/m) sum_i grad g_i(w)^T grad f_i(u^i). The rest counts the queries.
    """

    inner: Tensor
    samples: Tensor
    gradients: list[Tensor]
    value_queries: int
    gradient_queries: int


class RowSums:
    """Sums of rows, each weighted by the number of its samples, and the sums of these numbers.

    Args:
        form: the format of the rows, plain or with a log-scale.
        num_blocks: the number of blocks m.
        dtype: the dtype of the sums.
        device: the device of the sums.

    Examples:
        >>> from fcco.objectives import MultiTaskGap
        >>> rows = Rows(MultiTaskGap(torch.tensor([0, 1])))
        >>> sums = RowSums(rows, 2, torch.float32, torch.device("cpu"))
        >>> for value, count in ((1.0, 1), (4.0, 2)):
        ...     sums.add(torch.tensor([0]), torch.tensor([[value]]), torch.tensor([count]))
        >>> sums.samples, sums.means()[0]
        (tensor([3, 0]), tensor([3.]))
    """

    def __init__(
        self, form: Rows, num_blocks: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.form = form
        self.rows = torch.zeros((num_blocks, form.width), dtype=dtype, device=device)
        self.samples = torch.zeros(num_blocks, dtype=torch.int64, device=device)

    def add(self, blocks: Tensor, rows: Tensor, samples: Tensor) -> None:
        """Add rows of distinct blocks, where each row is the mean of ``samples`` samples."""
        blocks, rows, samples = (part.to(self.rows.device) for part in (blocks, rows, samples))
        part = self.form.weigh(rows, samples.unsqueeze(1).to(rows.dtype))
        self.rows[blocks] = self.form.add(self.rows[blocks], part)
        self.samples[blocks] += samples

    def means(self) -> Tensor:
        """Return the mean row of every block."""
        return self.form.weigh(self.rows, 1 / self.samples.to(self.rows.dtype).unsqueeze(1))


class ExactPass:
    """An exact pass, which adds up chunks and weights each block's values by their samples.

    The gradient of a chunk needs the total number of samples of its blocks. If slopes are taken at
    the exact values, it needs these as well. One sweep is enough if each block is in one chunk, or
    if slopes and totals are known from before. Otherwise a second sweep follows.

    With several ranks, the chunks are distributed in any way, with equally many on each rank. Every
    rank holds O(m) sums during the pass.

    Args:
        objective: the problem.
        row_format: the format of its rows.
        chunks: the number of closures of this rank.
        ranks: the processes that share the pass.
        rows: u of all blocks, where slopes are taken, or None to take them at the exact values.
        project: whether to project exact values into the domain first, as a table does.
        totals: the samples of each block in the last exact pass, or None.
        dtype: the precision of the sums.
        device: the device of the sums.
    """

    def __init__(
        self,
        objective: Objective,
        row_format: Rows,
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
        self.row_format = row_format
        self.chunks = chunks
        self.ranks = ranks
        self.rows = rows
        self.project = project
        self.known = None if rows is None else totals
        self.dtype = dtype
        self.device = device
        self.sums = RowSums(row_format, objective.num_blocks, dtype, device)
        self.value_queries = 0
        self.gradient_queries = 0
        self.needs_second_sweep = False

    def run(self, oracle: Oracle) -> Exact:
        """Sweep once or twice over the chunks and return the result.

        The oracle must keep gradients apart. It restores RNG and buffers afterwards.
        """
        device = self.device
        require_equal_counts(
            self.chunks, self.ranks, device, "in an exact pass ranks sum chunk by chunk"
        )
        self._sweep(oracle)
        samples = self._join_ranks()
        missing = (samples == 0).nonzero().flatten()
        if len(missing):
            raise ValueError(
                f"the exact pass found no sample of {len(missing)} blocks, the first of them "
                f"{missing[:10].tolist()}: it must cover every block"
            )
        exact = self.sums.means()
        # The first sweep was enough if its guesses about the totals were right.
        if self.needs_second_sweep or (
            self.known is not None and not torch.equal(self.known, samples)
        ):
            self.rows = exact if self.rows is None else self.rows
            # The second sweep knows the totals. Slopes are taken at the table, if there is one, or
            # at the exact values of the first sweep.
            self.known, self.needs_second_sweep = samples, False
            self.sums = RowSums(self.row_format, self.objective.num_blocks, self.dtype, device)
            oracle.forget()
            self._sweep(oracle)
            if not torch.equal(self._join_ranks(), samples):
                raise ValueError(
                    "the closures of an exact pass gave other samples when called again: they must "
                    "be deterministic given the RNG state"
                )
        gradients = oracle.gradient(Weights(current=1.0))
        checks = Checks(Share(self.objective.num_blocks), self.objective.inner_dim, device)
        checks.finite(gradients, "z")
        self.ranks.together(device, checks.raise_if_invalid)
        asked = torch.tensor([self.value_queries, self.gradient_queries], device=device)
        values, gradients_asked = self.ranks.sum(asked).tolist()
        return Exact(exact, samples, gradients, values, gradients_asked)

    def _sweep(self, oracle: Oracle) -> None:
        """Run every chunk forward, and backward where its gradient can be used."""
        for k in range(self.chunks):
            with oracle.show(Point.CURRENT, k) as (probe, _):
                self._observe(oracle, probe)

    def _join_ranks(self) -> Tensor:
        """Return the samples of every block on all ranks, and add up ``sums`` over the ranks."""
        sums = self.sums
        if self.ranks.size == 1:
            return sums.samples
        samples = self.ranks.sum(sums.samples.clone())
        # Here a block was assumed to be complete, but another rank had samples of it too.
        split = ((sums.samples != 0) & (sums.samples != samples)).any()
        unknown = self.known is None and bool(split)
        self.needs_second_sweep = self.ranks.any(self.needs_second_sweep or unknown, samples.device)
        # Rows with a log-scale cannot be added by an all-reduce, so they are gathered in pieces.
        for piece in sums.rows.split(PIECE):
            piece.copy_(reduce(self.row_format.add, self.ranks.gather(piece)))
        sums.samples = samples
        return samples

    def _observe(self, oracle: Oracle, probe: Probe) -> None:
        """Add one chunk to the sums, compute its slopes and back-propagate them."""
        objective, device = self.objective, self.device
        checks = Checks(Share(objective.num_blocks), objective.inner_dim, device)
        checks.probe(Point.SNAPSHOT, 0, probe)
        checks.distinct(probe.blocks)
        counts = probe.samples_per_row()
        total = self.ranks.together(device, lambda: checks.raise_if_invalid(counts.sum()))
        values = self.row_format.read(probe, self.dtype)
        met = bool(self.sums.samples[probe.blocks].any())
        self.sums.add(probe.blocks, values, counts)
        self.value_queries += total
        if self.known is None:
            # Assume that each chunk holds its blocks completely, until a block occurs again. The
            # weight of a loss needs the number of all samples, so with several chunks it has to
            # wait for the second sweep.
            chunks = self.ranks.size * self.chunks
            self.needs_second_sweep |= met or (probe.loss is not None and chunks > 1)
            fraction, of_all = torch.ones_like(values[:, 0]), 1.0
        else:
            # A chunk holds a part of a block's samples, so its gradient counts by that fraction.
            fraction = counts.to(self.dtype) / self.known[probe.blocks]
            of_all = total / int(self.known.sum())
        if self.needs_second_sweep and not self.ranks.reduction.active:
            # This gradient will be discarded, so skip it. With DDP or FSDP2 it must be computed
            # nevertheless: other ranks do not know yet, and all ranks reduce together.
            return
        u = values if self.rows is None else self.rows[probe.blocks]
        if self.project:
            u = self.row_format.project(u, probe.blocks)
        slopes = self.row_format.slopes(u, values, probe.blocks, supported=True)
        checks.rows(slopes, probe.blocks, "slope of f in an exact pass (feasible?)")
        self.ranks.together(
            device, lambda: None if self.needs_second_sweep else checks.raise_if_invalid()
        )
        self.gradient_queries += total
        # DDP averages the gradients of the ranks, but the sum is needed, hence the factor.
        factor = self.ranks.size / objective.num_blocks
        slopes = slopes * fraction.unsqueeze(1) * factor
        oracle.backward(probe, slopes, loss_weight=of_all * self.ranks.size)
