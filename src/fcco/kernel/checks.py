"""What is asked of a step's numbers; each fault names its blocks, and none costs a transfer."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fcco.distributed import Share
from fcco.kernel.faults import Faults
from fcco.methods.point import Point
from fcco.problem.probe import Probe
from fcco.distributed.sharded import local

__all__ = ["check_distinct", "check_ids", "check_probe", "check_rows", "check_same", "check_z"]


def check_ids(faults: Faults, blocks: Tensor, share: Share) -> Tensor:
    """Every id lies in 0 .. m-1 and belongs to this rank.

    Returns the ids, forced into this rank's range until this is settled.
    """

    def error(bad: Tensor) -> ValueError:
        given = blocks[bad].tolist()
        if outside := [i for i in given if not 0 <= i < share.total]:
            return ValueError(f"block ids {outside} lie outside 0..{share.total - 1}")
        owners = sorted({share.owner(i) for i in given})
        return ValueError(
            f"blocks {given} belong to ranks {owners}; this is rank {share.rank}, whose blocks "
            f"are {share.start}..{share.stop - 1} (block_loader draws from these)"
        )

    ids = blocks.clamp(share.start, share.stop - 1)
    faults.add_rows(ids != blocks, error)
    return ids


def check_distinct(faults: Faults, blocks: Tensor) -> None:
    """No block is probed twice in a step (also not by two micro-batches)."""
    ordered = blocks.sort().values
    faults.add_rows(
        ordered[1:] == ordered[:-1],
        lambda bad: ValueError(f"blocks {ordered[bad].unique().tolist()} were probed twice"),
    )


def check_same(faults: Faults, probe: Probe, blocks: Tensor, first: Point, point: Point) -> None:
    """A further point sees the blocks that the first one saw."""
    reason = "a closure must be deterministic given the RNG state"
    if probe.blocks.shape != blocks.shape:
        raise ValueError(
            f"the closure probed {len(blocks)} blocks at the {first.value} point but "
            f"{len(probe.blocks)} at the {point.value} point: {reason}"
        )
    faults.add_rows(
        probe.blocks != blocks,
        lambda bad: ValueError(
            f"the closure probed blocks {blocks[bad].tolist()} at the {first.value} point but "
            f"{probe.blocks[bad].tolist()} at the {point.value} point: {reason}"
        ),
    )


def check_probe(faults: Faults, probe: Probe, point: Point) -> None:
    """Values, pair and loss are finite, samples are positive."""
    check_rows(faults, probe.values, probe.blocks, f"Probe.values at the {point.value} point")
    if probe.pair is not None:
        check_rows(faults, probe.pair, probe.blocks, f"Probe.pair at the {point.value} point")
    if probe.log_scale is not None:
        what = f"Probe.log_scale at the {point.value} point"
        check_rows(faults, probe.log_scale.unsqueeze(1), probe.blocks, what)
    if probe.loss is not None:
        faults.add_finite(
            probe.loss,
            lambda _: FloatingPointError(f"non-finite Probe.loss at the {point.value} point"),
        )
    if isinstance(probe.samples, Tensor):
        faults.add_rows(
            probe.samples < 1,
            lambda bad: ValueError(
                f"Probe.samples of blocks {probe.blocks[bad].tolist()} must be at least 1"
            ),
        )


def check_rows(faults: Faults, rows: Tensor, blocks: Tensor, what: str) -> None:
    """Every row of a (k, p) tensor is finite."""
    faults.add_finite(
        rows,
        lambda bad: FloatingPointError(f"non-finite {what} of blocks {blocks[bad].tolist()}"),
    )


def check_z(
    faults: Faults,
    zs: Sequence[Tensor],
    keep: float = 1.0,
    terms: Sequence[tuple[list[Tensor], float]] = (),
) -> None:
    """keep z + sum of weight term is finite in every parameter, as far as this rank holds it.

    Nothing is computed but norms, many times cheaper than a look at every entry. While the norms of
    the terms are finite, so are the sums: the square of every entry is finite, and numbers that
    small cannot make a finite z overflow. Otherwise the sums are formed and looked at.

    Args:
        faults: where the check is noted.
        zs: z of every parameter, finite if there are terms.
        keep: its weight, at most 1.
        terms: what is added; their weights are at most 1.
    """
    zs = [local(z) for z in zs]
    norms = torch._foreach_norm([part for parts, _ in terms for part in parts] or zs)

    def find() -> Exception | None:
        sums = torch._foreach_mul(zs, keep)
        for parts, weight in terms:
            torch._foreach_add_(sums, parts, alpha=weight)
        bad = [j for j, total in enumerate(sums) if not total.isfinite().all()]
        return FloatingPointError(f"non-finite z of trainable parameters {bad}") if bad else None

    faults.add_screen(torch.stack([norm.to(norms[0].device) for norm in norms]), find)
