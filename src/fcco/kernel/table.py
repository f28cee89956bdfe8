"""The table u, with one row of tracked inner values per block and its older generations."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fcco.distributed import Ranks, Share
from fcco.kernel.rows import unscale
from fcco.kernel.storage import Zeros, zeros_in_memory
from fcco.methods.gain import new_gain
from fcco.methods.weights import Point
from fcco.problem.given import tensor

__all__ = ["Remembered", "Table"]

_WIPED = -750.0
"""Used for log(1 - beta) at beta = 1. Its exponential is exactly 0, and sums of it stay finite."""

_ROOM = 4096
"""Initial size of the overlay, in rows of all ranks. It is the same for every method and batch, so
that ``torch.distributed.checkpoint`` can load into a new optimizer."""

_NO_BLOCK = torch.iinfo(torch.int64).max
"""Id that fills unused places of the overlay; it is sorted to the end."""


class Remembered(NamedTuple):
    """What the table holds of the probed rows before a step."""

    old: Tensor
    """(k, width), the rows u_{t-1}."""
    unvisited: Tensor
    """(k, 1), whether a row has no value yet."""
    last_visit: Tensor | None
    """(k, 1), the step of each row's last visit, if it is stored."""
    anchor: Tensor | None
    """(k, width), the exact values at the last snapshot, if they are stored."""


class Table(nn.Module):
    """The rows u_t of all blocks of this rank; a step reads and writes O(B1) of them.

    All state is in buffers. A buffer that the method does not need is None. Blocks are named by
    their ids in the whole problem. Tensors are passed in and returned on the device of the ids,
    whatever the device of the rows is; only ``read`` and ``whole`` return them on that of the rows.
    Values are not checked here: ``write`` and ``fill`` are
    called after the last check.

    Args:
        share: the blocks of this rank.
        width: the width of a row, which is p, or p + 1 with a log-scale.
        scaled: the number of leading columns whose log-scale is in the last column; 0 without one.
        dtype: the precision of the rows.
        zeros: the function that makes the tensors, on a device or in a file.
        ages: whether to store the step of each row's last visit (gamma = "age").
        previous: whether to store u_{t-2}, as an overlay of the rows that the last step replaced.
        anchor: whether to store the exact values of the last snapshot.
        snapshot: whether to store the rows at the time of the snapshot.
        shrinks: whether all rows shrink by 1 - beta in each step. This is applied when rows are
            read, so that a step still costs O(B1).
        gain: whether to store what the gain is chosen from (beta = "auto").

    Examples:
        >>> table = Table(Share(5), 1)
        >>> table.write(torch.tensor([3]), torch.zeros(1, 1), torch.ones(1, 1), step=1, beta=0.1)
        >>> table.read(torch.tensor([2, 3])).tolist()
        [[0.0], [1.0]]
    """

    HOST = ("clock", "gain")
    """Buffers that the host reads in every step; they are equal on all ranks."""
    AT_SNAPSHOT = ("anchor", "samples", "snapshot")
    """Buffers that only a snapshot writes."""
    RESIZED = ("overlay_blocks", "overlay_rows")
    """Buffers whose length depends on the batch and not on m."""

    rows: Tensor
    """(m, width), u_t as of the last visit of each row."""
    visited: Tensor
    """(m,), whether a row has a value."""
    last_visit: Tensor | None
    overlay_blocks: Tensor | None
    """Sorted ids of the blocks that the last step wrote, followed by ``_NO_BLOCK``."""
    overlay_rows: Tensor | None
    """Rows of these blocks before the last step."""
    anchor: Tensor | None
    samples: Tensor | None
    """(m,), the number of samples behind each row of the anchor."""
    snapshot: Tensor | None
    clock: Tensor | None
    """(2,), sum_s log(1 - beta_s) over all steps, one step ago and now."""
    written: Tensor | None
    """(m,), the value of the clock when each row was written."""
    gain: Tensor | None

    def __init__(
        self,
        share: Share,
        width: int,
        *,
        scaled: int = 0,
        dtype: torch.dtype = torch.float32,
        zeros: Zeros = zeros_in_memory,
        ages: bool = False,
        previous: bool = False,
        anchor: bool = False,
        snapshot: bool = False,
        shrinks: bool = False,
        gain: bool = False,
    ) -> None:
        super().__init__()
        self.share = share
        self.scaled = scaled
        m, shape = share.count, (share.count, width)
        room = Share(_ROOM, share.rank, share.size).count

        def keep(name: str, wanted: bool, shape: tuple[int, ...], dtype: torch.dtype) -> None:
            self.register_buffer(name, zeros(shape, dtype) if wanted else None)

        keep("rows", True, shape, dtype)
        keep("visited", True, (m,), torch.bool)
        keep("last_visit", ages, (m,), torch.int64)
        keep("overlay_blocks", previous, (room,), torch.int64)
        keep("overlay_rows", previous, (room, width), dtype)
        if self.overlay_blocks is not None:
            self.overlay_blocks.fill_(_NO_BLOCK)
        keep("anchor", anchor, shape, dtype)
        keep("samples", anchor, (m,), torch.int64)
        keep("snapshot", snapshot, shape, dtype)
        keep("written", shrinks, (m,), torch.float64)
        self.register_buffer(
            "clock", torch.zeros(2, dtype=torch.float64, device="cpu") if shrinks else None
        )
        self.register_buffer("gain", new_gain() if gain else None)

    @property
    def num_blocks(self) -> int:
        """The number of blocks m of all ranks."""
        return self.share.total

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the rows."""
        return self.rows.dtype

    @property
    def device(self) -> torch.device:
        """The device of the rows."""
        return self.rows.device

    # Reading -------------------------------------------------------------------------------------

    def read(self, blocks: Tensor) -> Tensor:
        """Return a copy of u_t of ``blocks``, (k, p); a block that was never visited has 0.

        The blocks must belong to this rank. The result is on the device of the table. If rows have
        log-scales, it holds exp(scale) times the mantissas, which may overflow.
        """
        blocks = tensor("blocks", blocks).to(self.rows.device)
        if blocks.numel() and (blocks.dtype == torch.bool or blocks.is_floating_point()):
            raise ValueError(f"blocks must be ids of blocks, got {blocks.dtype}")
        blocks = blocks.long()  # torch would take uint8 for a mask
        outside = (blocks < self.share.start) | (blocks >= self.share.stop)
        if outside.any():
            raise ValueError(
                f"block ids {blocks[outside].tolist()} lie outside "
                f"{self.share.start}..{self.share.stop - 1}"
            )
        rows = self.gather(blocks)
        return unscale(rows, self.scaled) if self.scaled else rows

    def recall(self, blocks: Tensor) -> Remembered:
        """Return what is stored of ``blocks`` before the step; ids are not checked."""
        device, places = blocks.device, self._places(blocks)
        last, anchor = self.last_visit, self.anchor
        rows = self.rows[places]
        if self.written is not None:
            rows = self._shrink(rows, self.written[places], Point.CURRENT)
        return Remembered(
            rows.to(device),
            self.visited[places].to(device).logical_not_().unsqueeze(1),
            None if last is None else last[places].to(device).unsqueeze(1),
            None if anchor is None else anchor[places].to(device),
        )

    def gather(self, blocks: Tensor, point: Point = Point.CURRENT) -> Tensor:
        """Return the rows at which slopes for ``point`` are taken; ids are not checked.

        These are u_{t-1} for the current point, u_{t-2} for the previous point, and for the
        snapshot the rows that were stored with it.
        """
        places = self._places(blocks)
        if point is Point.SNAPSHOT and self.snapshot is not None:
            return self.snapshot[places].to(blocks.device)
        rows = self.rows[places]
        if self.written is not None:
            rows = self._shrink(rows, self.written[places], point)
        if point is Point.PREVIOUS and self.overlay_blocks is not None:
            # u_{t-2} differs from u_{t-1} only on the rows that the last step wrote, so the overlay
            # of O(B1) rows replaces a second table.
            assert self.overlay_rows is not None
            wanted = blocks.to(rows.device)
            found = torch.searchsorted(self.overlay_blocks, wanted)
            found = found.clamp_(max=len(self.overlay_blocks) - 1)
            hit = (self.overlay_blocks[found] == wanted).unsqueeze(1)
            rows = torch.where(hit, self.overlay_rows[found], rows)
        return rows.to(blocks.device)

    def whole(self) -> Tensor:
        """Return u_t of all blocks of this rank, in O(m), for exact passes."""
        if self.written is None:
            return self.rows
        return self._shrink(self.rows, self.written, Point.CURRENT)

    # Writing -------------------------------------------------------------------------------------

    def write(
        self,
        blocks: Tensor,
        old: Tensor,
        new: Tensor,
        *,
        step: int,
        beta: float,
        gain: Tensor | None = None,
    ) -> None:
        """Replace u_{t-1} (``old``) by u_t (``new``) in the rows of ``blocks``.

        Args:
            blocks: (k,), the ids.
            old: (k, width), their rows before the step.
            new: (k, width), their rows after the step.
            step: t.
            beta: the gain of this step, by which all rows shrink if the method does so.
            gain: the numbers from which the next gain is chosen, if they have changed.
        """
        # Allocate memory first, so that running out of memory leaves the table unchanged.
        places = self._places(blocks)
        device = places.device
        old, new = old.to(device), new.to(device)
        clock = None
        if self.clock is not None:
            then = float(self.clock[1])
            now = then + (math.log1p(-beta) if beta < 1 else _WIPED)
            clock = torch.tensor([then, now], dtype=torch.float64)
        if self.overlay_blocks is not None:
            self._overlay(blocks.to(device), old)
        if clock is not None and self.clock is not None and self.written is not None:
            self.clock.copy_(clock)
            self.written.index_fill_(0, places, now)
        if self.last_visit is not None:
            self.last_visit.index_fill_(0, places, step)
        self.rows.index_copy_(0, places, new)
        self.visited.index_fill_(0, places, True)
        if self.gain is not None and gain is not None:
            self.gain.copy_(gain)

    def fill(self, rows: Tensor, *, step: int) -> None:
        """Set every row, as a visit at ``step``; ``rows`` may be one row for all."""
        now = 0.0 if self.clock is None else float(self.clock[1])
        self.rows.copy_(rows)
        self.visited.fill_(True)
        if self.last_visit is not None:
            self.last_visit.fill_(step)
        if self.written is not None:
            self.written.fill_(now)

    def keep_snapshot(self, anchor: Tensor, samples: Tensor, rows: Tensor) -> None:
        """Store the exact values of a snapshot, and the current rows u_t.

        Args:
            anchor: (m, width), the exact values.
            samples: (m,), the number of samples behind them.
            rows: (m, width), the rows u_t, see ``whole``.
        """
        assert self.anchor is not None
        assert self.samples is not None
        self.anchor.copy_(anchor)
        self.samples.copy_(samples)
        if self.snapshot is not None:
            self.snapshot.copy_(rows)

    def _overlay(self, blocks: Tensor, rows: Tensor, *, largest: int = 0) -> None:
        """Store ``rows`` as u_{t-2} of ``blocks``; no other rows have changed.

        Args:
            blocks: (k,), blocks of this rank.
            rows: (k, width), their rows before the step.
            largest: the largest number of blocks of any rank, if the ranks differ.
        """
        assert self.overlay_blocks is not None
        assert self.overlay_rows is not None
        ordered, order = blocks.sort()
        rows = rows[order]
        count = len(blocks)
        places, kept = self.overlay_blocks, self.overlay_rows
        if largest or count > len(places):
            # All ranks must grow to the same room, because a checkpoint joins their overlays.
            room = _ROOM
            while Share(room, 0, self.share.size).min_count < max(count, largest):
                room *= 2
            here = Share(room, self.share.rank, self.share.size).count
            if len(places) != here:
                places, kept = blocks.new_empty(here), rows.new_zeros(here, rows.shape[1])
        used, unused, used_rows = places[:count], places[count:], kept[:count]
        self.overlay_blocks, self.overlay_rows = places, kept
        used.copy_(ordered)
        unused.fill_(_NO_BLOCK)
        used_rows.copy_(rows)

    # Moving and saving ---------------------------------------------------------------------------

    def follow(self, device: torch.device) -> None:
        """Move all buffers to ``device``, except those that the host reads."""
        for name, buffer in self.named_buffers():
            if name not in self.HOST:
                setattr(self, name, buffer.to(device))

    def pack(self, ranks: Ranks) -> dict[str, Tensor]:
        """Return the buffers in the form that is saved; with several ranks they are DTensors."""
        buffers = dict(self.named_buffers())
        if ranks.size == 1:
            return buffers
        for name, part in buffers.items():
            if name not in self.HOST:
                total = self._room() if name in self.RESIZED else self.num_blocks
                buffers[name] = ranks.sharded(part, total)
        return buffers

    def select(self, name: str, saved: Tensor) -> Tensor:
        """Return the part of a saved buffer that this rank needs: its rows, or the whole overlay.

        A state that was saved by one process holds plain tensors of all rows.
        """
        if hasattr(saved, "full_tensor"):
            part: Tensor = saved.full_tensor() if name in self.RESIZED else saved.to_local()  # type: ignore[attr-defined]
            return part
        whole = name in self.RESIZED or name in self.HOST or len(saved) != self.num_blocks
        return saved if whole else saved[self.share.start : self.share.stop]

    def keep_own_overlay(self) -> None:
        """Drop the entries of a loaded overlay that belong to other ranks."""
        if self.overlay_blocks is None or self.overlay_rows is None:
            return
        blocks, rows = self.overlay_blocks, self.overlay_rows
        mine = (blocks >= self.share.start) & (blocks < self.share.stop)
        self._overlay(blocks[mine], rows[mine], largest=int((blocks != _NO_BLOCK).sum()))

    def _room(self) -> int:
        """Return the total size of the overlays of all ranks."""
        assert self.overlay_blocks is not None
        room = _ROOM
        while Share(room, self.share.rank, self.share.size).count < len(self.overlay_blocks):
            room *= 2
        return room

    def _places(self, blocks: Tensor) -> Tensor:
        """Return the positions of ``blocks`` among the rows of this rank."""
        places = blocks.to(self.rows.device)
        return places - self.share.start if self.share.start else places

    def _shrink(self, rows: Tensor, written: Tensor, point: Point) -> Tensor:
        """Apply the shrinking since each row was written, up to now or (previous) one step ago."""
        assert self.clock is not None
        now = float(self.clock[1 if point is Point.CURRENT else 0])
        # The product of (1 - beta_s) over the steps since the row was written, as a difference of
        # cumulative logarithms in float64.
        factor = torch.exp(now - written).unsqueeze(1).to(rows.dtype)
        if self.scaled:
            return torch.cat([rows[:, :-1] * factor, rows[:, -1:]], dim=1)
        return rows * factor
