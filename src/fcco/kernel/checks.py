"""All checks of a step, collected so that one device-to-host read is enough."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fcco.distributed import Share
from fcco.methods.weights import Point
from fcco.problem import Probe

__all__ = ["MOST_SAMPLES", "Checks"]

MOST_SAMPLES = 2**32
"""Largest number of samples that a block may report in a step; int64 counters never overflow."""


class Checks:
    """A collection of flags and of tensors that must be finite, which is read in one transfer.

    Reading it raises the first error that was found.

    Args:
        share: the blocks that this rank may probe.
        inner_dim: p, the number of inner values of a block.
        device: the device of the parameters.

    Examples:
        >>> checks = Checks(Share(5), 1, torch.device("cpu"))
        >>> checks.probe(Point.CURRENT, 0, Probe(torch.tensor([3, 7]), torch.zeros(2, 1)))
        tensor([3, 4])
        >>> checks.raise_if_invalid()
        Traceback (most recent call last):
        ValueError: block ids [7] lie outside 0..4
    """

    def __init__(self, share: Share, inner_dim: int, device: torch.device) -> None:
        self.share = share
        self.inner_dim = inner_dim
        self.device = device
        self.samples: Tensor | int = 0
        """Number of inner samples in one pass over all closures; a tensor if a probe gave one."""
        self._first: list[tuple[Point, Tensor]] = []  # the blocks of each closure's first probe
        self._flags: list[Tensor] = []
        self._finite: list[Tensor] = []
        self._errors: list[Callable[[], Exception | None]] = []

    # What is checked -----------------------------------------------------------------------------

    def probe(self, point: Point, k: int, probe: Probe) -> Tensor:
        """Check closure k's probe at ``point``: shapes, ids, finite values, the same blocks.

        Return the ids, clamped into the valid range. A bad id is reported only when the checks are
        read, and until then it must not index out of bounds.
        """
        self._shapes(probe)
        # A copy: a closure may write the blocks of every point into the same tensor.
        blocks = probe.blocks.clone()
        self.rows(probe.values, blocks, f"Probe.values at the {point.value} point")
        if probe.pair is not None:
            self.rows(probe.pair, blocks, f"Probe.pair at the {point.value} point")
        if probe.log_scale is not None:
            what = f"Probe.log_scale at the {point.value} point"
            self.rows(probe.log_scale, blocks, what)
        if probe.loss is not None:
            self._forbid(
                ~probe.loss.detach().isfinite().view(1),
                lambda _: FloatingPointError(f"non-finite Probe.loss at the {point.value} point"),
            )
        if isinstance(probe.samples, Tensor):
            self._forbid(
                (probe.samples < 1) | (probe.samples > MOST_SAMPLES),
                lambda bad: ValueError(
                    f"Probe.samples of blocks {blocks[bad].tolist()} must be at least 1 and "
                    f"at most {MOST_SAMPLES}"
                ),
            )
        ids = blocks.clamp(self.share.start, self.share.stop - 1)
        if k < len(self._first):
            self._same_blocks(point, k, blocks)
        else:
            self._first.append((point, blocks))
            many = probe.samples
            self.samples += many.sum() if isinstance(many, Tensor) else many * len(ids)
            share = self.share  # capturing self or the probe in the lambda would keep the graph
            self._forbid(ids != blocks, lambda bad: _foreign(share, blocks[bad]))
        return ids

    def distinct(self, blocks: Tensor) -> None:
        """Check that no block is probed twice in a step, nor by two micro-batches."""
        ordered = blocks.sort().values
        self._forbid(
            ordered[1:] == ordered[:-1],
            lambda bad: ValueError(f"blocks {ordered[bad].unique().tolist()} were probed twice"),
        )

    def rows(self, rows: Tensor, blocks: Tensor, what: str) -> None:
        """Check that every row of a (k, ...) tensor is finite."""
        rows = rows.detach() if rows.requires_grad else rows

        def find() -> Exception | None:
            bad = ~rows.isfinite().view(len(rows), -1).all(1)
            if not bad.any():
                return None
            return FloatingPointError(f"non-finite {what} of blocks {blocks[bad].tolist()}")

        # Only a sum is computed now; ``find`` looks for the rows if it turns out not to be finite.
        self._finite.append(rows.flatten())
        self._errors.append(find)

    def finite(self, tensors: Sequence[Tensor], what: str) -> None:
        """Check that tensors are finite; they are the local parts of one tensor per parameter.

        Norms are many times cheaper than a test of every entry. The entries are tested only if a
        norm is not finite.
        """

        def find() -> Exception | None:
            bad = [j for j, tensor in enumerate(tensors) if not tensor.isfinite().all()]
            if not bad:
                return None
            return FloatingPointError(f"non-finite {what} of trainable parameters {bad}")

        norms = torch._foreach_norm(list(tensors))
        self._finite.append(torch.stack([norm.to(self.device) for norm in norms]))
        self._errors.append(find)

    # The single read -----------------------------------------------------------------------------

    def flag(self) -> Tensor:
        """Return whether there is an error, or a sum that overflowed, as a tensor on the device."""
        flags, total = self._gather()
        # x - x is 0 for a finite number and NaN otherwise, and NaN != 0 is true.
        return flags.any() | (total - total != 0)

    def raise_if_invalid(self, number: Tensor | int = 0) -> int:
        """Read all checks, together with ``number``, in one transfer; raise the first error."""
        return self.read(number)[0]

    def read(self, number: Tensor | int, sums: Tensor | None = None) -> tuple[int, list[float]]:
        """Do the same as ``raise_if_invalid``, with the ``sums`` of a step in the same transfer."""
        flags, total = self._gather()
        words = [flags.sum(), total.double()]  # float64 holds all counts exactly
        if isinstance(number, Tensor):
            words.append(number)
        every = torch.stack(words)
        flagged, summed, *seen = (every if sums is None else torch.cat([every, sums])).tolist()
        if isinstance(number, Tensor):
            number = int(seen.pop(0))
        if flagged or not math.isfinite(summed):
            # A sum may overflow although every entry is finite. Then no error is found below.
            for find in self._errors:
                if (error := find()) is not None:
                    raise error
        return number, seen

    def _gather(self) -> tuple[Tensor, Tensor]:
        """Return all flags, and the sum of all entries that must be finite.

        A NaN or infinity among the entries makes the sum non-finite. The tensors may differ in
        precision; ``torch.cat`` promotes them.
        """
        none = torch.zeros(0, device=self.device)
        return torch.cat([none, *self._flags]), torch.cat([none, *self._finite]).sum()

    # Single checks and their messages ------------------------------------------------------------

    def _shapes(self, probe: Probe) -> None:
        """Check types, shapes and devices, which the host knows without a transfer."""
        ids, p = probe.blocks, self.inner_dim
        count = len(ids) if isinstance(ids, Tensor) and ids.ndim == 1 else "B1"
        self._shape("blocks", ids, (count,), torch.int64)
        if count == 0:
            raise ValueError("Probe.blocks is empty: a step probes at least one block")
        self._shape("values", probe.values, (count, p))
        if probe.pair is not None:
            self._shape("pair", probe.pair, (count, p))
        if probe.noise is not None:
            self._shape("noise", probe.noise, (count, p))
        if probe.loss is not None:
            self._shape("loss", probe.loss, ())
        if probe.log_scale is not None:
            self._shape("log_scale", probe.log_scale, (count,))
            if probe.log_scale.requires_grad:
                raise ValueError("Probe.log_scale must be detached: it is a choice of units")
        samples = probe.samples
        if isinstance(samples, Tensor):
            self._shape("samples", samples, (count,), torch.int64)
        elif isinstance(samples, bool) or not isinstance(samples, int):
            raise ValueError(f"Probe.samples must be an int or a tensor, got {samples!r}")
        elif not 1 <= samples <= MOST_SAMPLES:
            raise ValueError(
                f"Probe.samples must be at least 1 and at most {MOST_SAMPLES}, got {samples}"
            )

    def _shape(
        self,
        name: str,
        tensor: object,
        shape: tuple[int | str, ...],
        dtype: torch.dtype | None = None,
    ) -> None:
        """Check one field of a probe; ``dtype=None`` accepts any floating-point type."""
        if not isinstance(tensor, Tensor):
            raise ValueError(f"Probe.{name} must be a tensor, got {type(tensor).__name__}")
        if tuple(tensor.shape) != shape:
            wanted = "(" + ", ".join(map(str, shape)) + ")"
            raise ValueError(f"Probe.{name} must have shape {wanted}, got {tuple(tensor.shape)}")
        if dtype is None and not tensor.is_floating_point():
            raise ValueError(f"Probe.{name} must be floating point, got {tensor.dtype}")
        if dtype is not None and tensor.dtype != dtype:
            raise ValueError(f"Probe.{name} must be {str(dtype)[6:]}, got {tensor.dtype}")
        if tensor.device != self.device:
            raise ValueError(
                f"Probe.{name} is on {tensor.device}, the parameters are on {self.device}"
            )

    def _forbid(self, bad: Tensor, error: Callable[[Tensor], Exception]) -> None:
        """Add one flag per row; ``error`` gets the indices of the bad rows."""
        self._flags.append(bad)
        self._errors.append(lambda: error(bad.nonzero().flatten()) if bad.any() else None)

    def _same_blocks(self, point: Point, k: int, now: Tensor) -> None:
        """Check that a further point has the same blocks as the first one."""
        first, blocks = self._first[k]
        reason = "a closure must be deterministic given the RNG state"
        if now.shape != blocks.shape:
            raise ValueError(
                f"the closure probed {len(blocks)} blocks at the {first.value} point but "
                f"{len(now)} at the {point.value} point: {reason}"
            )
        self._forbid(
            now != blocks,
            lambda bad: ValueError(
                f"the closure probed blocks {blocks[bad].tolist()} at the {first.value} point but "
                f"{now[bad].tolist()} at the {point.value} point: {reason}"
            ),
        )


def _foreign(share: Share, blocks: Tensor) -> ValueError:
    """Return the error for ids that do not exist or belong to another rank."""
    given = blocks.tolist()
    if outside := [i for i in given if not 0 <= i < share.total]:
        return ValueError(f"block ids {outside} lie outside 0..{share.total - 1}")
    owners = sorted({share.owner(i) for i in given})
    return ValueError(
        f"blocks {given} belong to ranks {owners}; this is rank {share.rank}, whose blocks "
        f"are {share.start}..{share.stop - 1} (block_loader draws from these)"
    )
