"""The table u: one row of tracked inner values per block, with the generations slopes need."""

import math
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from fcco.distributed import Share
from fcco.kernel.rows.scaled import unscaled
from fcco.kernel.storage import Zeros, zeros_in_memory
from fcco.kernel.writes import Writes, commit
from fcco.methods.gain import new_gain
from fcco.methods.point import Point

__all__ = ["REPLICATED", "RESIZED", "BlockTable", "Remembered"]

_WIPED = -750.0
"""Stands for log(1 - beta) at beta = 1: exp of it is exactly zero, and sums of it stay finite."""


_ROOM = 4096
"""Rows of all ranks' last batches that there is room for at first. It is the same for every method
and batch, so that ``torch.distributed.checkpoint`` can load into a new optimizer."""

RESIZED = ("overlay_blocks", "overlay_rows")
"""Buffers whose length follows from the batch, not from m."""
REPLICATED = ("clock", "gain")
"""Buffers that are the same on every rank."""

_NONE = torch.iinfo(torch.int64).max
"""In the place of a block where there is none; sorted, it comes last."""


class Remembered(NamedTuple):
    """What a table has on the probed rows before a step."""

    old: Tensor
    """u_{t-1}, (k, width)."""
    unvisited: Tensor
    """Which rows have no value yet, (k, 1)."""
    last_visit: Tensor | None
    """The step of each row's last visit, (k, 1), if it is kept."""
    anchor: Tensor | None
    """Exact values at the last snapshot, (k, width), if they are kept."""


class BlockTable:
    """u_t for every block of this rank; a step reads and writes O(B1) rows.

    All state lies in ``buffers``, a flat dictionary of tensors that the optimizer keeps in its
    ``state``, so that it travels with ``state_dict``. What a method does not need is not there.
    Blocks are known by their ids in the whole problem, and tensors are handed in and out on the
    device of the ids, wherever the rows lie.

    Args:
        buffers: the tensors.
        share: which blocks they are of.
        scaled: the last column of a row is the log-scale of the first ``scaled`` ones; 0: there is
            no log-scale (``fcco.kernel.rows``).

    Examples:
        >>> table = BlockTable.build(Share(5), 1, dtype=torch.float32)
        >>> blocks = torch.tensor([3])
        >>> old, new = table.gather(blocks), torch.ones(1, 1)
        >>> commit(table.writes(blocks, old, new, step=1, beta=0.1))
        >>> table.read(torch.tensor([2, 3])).tolist()
        [[0.0], [1.0]]
    """

    def __init__(self, buffers: dict[str, Tensor], share: Share, *, scaled: int = 0) -> None:
        self.buffers = buffers
        self.share = share
        self.scaled = scaled

    @classmethod
    def build(
        cls,
        share: Share,
        width: int,
        *,
        scaled: int = 0,
        dtype: torch.dtype,
        zeros: Zeros = zeros_in_memory,
        ages: bool = False,
        previous: bool = False,
        anchor: bool = False,
        snapshot: bool = False,
        shrinks: bool = False,
        gain: bool = False,
    ) -> "BlockTable":
        """An empty table.

        Args:
            share: the blocks.
            width: of a row: p, or p + 1 with a log-scale.
            scaled: how many leading columns have a log-scale in the last.
            dtype: of the rows.
            zeros: makes the tensors, where they are to lie.
            ages: keep the step of each row's last visit (gamma = "age").
            previous: keep u_{t-2}, as an overlay of the last batch's old rows.
            anchor: keep the exact values of the last snapshot.
            snapshot: keep the rows as they were when the snapshot was taken.
            shrinks: rows shrink by 1 - beta in each step, which is applied when they are read.
            gain: keep what chooses the gain (beta = "auto").
        """
        m, shape = share.count, (share.count, width)
        buffers = {"rows": zeros(shape, dtype), "visited": zeros((m,), torch.bool)}
        if ages:
            buffers["last_visit"] = zeros((m,), torch.int64)
        if previous:
            room = Share(_ROOM, share.rank, share.size).count
            buffers["overlay_blocks"] = zeros((room,), torch.int64).fill_(_NONE)
            buffers["overlay_rows"] = zeros((room, width), dtype)
        if anchor:
            buffers["anchor"] = zeros(shape, dtype)
            buffers["samples"] = zeros((m,), torch.int64)
        if snapshot:
            buffers["snapshot"] = zeros(shape, dtype)
        if shrinks:
            # Two readings of the clock sum_s log(1 - beta_s): one step ago, and now. A row
            # remembers the reading at which it was written.
            buffers["clock"] = torch.zeros(2, dtype=torch.float64)
            buffers["written"] = zeros((m,), torch.float64)
        if gain:
            buffers["gain"] = new_gain()
        return cls(buffers, share, scaled=scaled)

    @property
    def num_blocks(self) -> int:
        """m, of all ranks."""
        return self.share.total

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the rows."""
        return self.buffers["rows"].dtype

    @property
    def device(self) -> torch.device:
        """Where the rows lie."""
        return self.buffers["rows"].device

    @property
    def room(self) -> int:
        """Rows of a batch that all ranks' overlays have room for."""
        room, here = _ROOM, len(self.buffers["overlay_blocks"])
        while Share(room, self.share.rank, self.share.size).count < here:
            room *= 2
        return room

    def read(self, blocks: Tensor) -> Tensor:
        """u_t of ``blocks``, a copy, (k, p); 0 where a block was never visited.

        They must be this rank's, and the rows come where the table lies. Of an objective that
        keeps log-scales, exp(scale) times the mantissas, which may overflow: ``gather`` has both
        apart.
        """
        blocks = torch.as_tensor(blocks, device=self.device)
        outside = (blocks < self.share.start) | (blocks >= self.share.stop)
        if outside.any():
            raise ValueError(
                f"block ids {blocks[outside].tolist()} lie outside "
                f"{self.share.start}..{self.share.stop - 1}"
            )
        rows = self.gather(blocks)
        return unscaled(rows, self.scaled) if self.scaled else rows

    def recall(self, blocks: Tensor) -> Remembered:
        """What is known of ``blocks`` before the step; ids are not checked."""
        here, buffers = blocks.device, self.buffers
        places = self._places(blocks)
        last, anchor = buffers.get("last_visit"), buffers.get("anchor")
        return Remembered(
            self._rows(places, Point.CURRENT).to(here),
            buffers["visited"][places].to(here).logical_not_().unsqueeze(1),
            None if last is None else last[places].to(here).unsqueeze(1),
            None if anchor is None else anchor[places].to(here),
        )

    def gather(self, blocks: Tensor, point: Point = Point.CURRENT) -> Tensor:
        """The rows whose slopes belong to ``point``; ids are not checked.

        u_{t-1} for the current point, u_{t-2} for the previous one, and the rows kept at the
        snapshot for that.
        """
        places = self._places(blocks)
        if point is Point.SNAPSHOT:
            return self.buffers["snapshot"][places].to(blocks.device)
        rows = self._rows(places, point)
        overlay = self.buffers.get("overlay_blocks")
        if point is Point.PREVIOUS and overlay is not None:
            # u_{t-2} differs from u_{t-1} only on the rows that the last step wrote.
            wanted = blocks.to(rows.device)
            found = torch.searchsorted(overlay, wanted).clamp_(max=len(overlay) - 1)
            hit = (overlay[found] == wanted).unsqueeze(1)
            rows = torch.where(hit, self.buffers["overlay_rows"][found], rows)
        return rows.to(blocks.device)

    def writes(self, blocks: Tensor, old: Tensor, new: Tensor, *, step: int, beta: float) -> Writes:
        """Changes that replace u_{t-1} (``old``) by u_t (``new``) on the rows of ``blocks``."""
        buffers, places = self.buffers, self._places(blocks)
        new, old = new.to(places.device), old.to(places.device)
        writes: Writes = []
        if "overlay_blocks" in buffers:
            writes += self.overlay(blocks.to(places.device), old)
        if "written" in buffers:
            then = float(buffers["clock"][1])
            now = then + (math.log1p(-beta) if beta < 1 else _WIPED)
            clock = torch.tensor([then, now], dtype=torch.float64)
            writes.append(partial(buffers["clock"].copy_, clock))
            writes.append(partial(buffers["written"].index_fill_, 0, places, now))
        if "last_visit" in buffers:
            writes.append(partial(buffers["last_visit"].index_fill_, 0, places, step))
        writes.append(partial(buffers["rows"].index_copy_, 0, places, new))
        writes.append(partial(buffers["visited"].index_fill_, 0, places, True))
        return writes

    def overlay(self, blocks: Tensor, rows: Tensor, *, most: int = 0) -> Writes:
        """Changes that remember that ``rows`` were u_{t-2} of ``blocks``, as those of no other.

        ``most`` is how many some rank may have, if they differ.
        """
        places, kept, writes = self.buffers["overlay_blocks"], self.buffers["overlay_rows"], []
        count = max(len(blocks), most)
        if count > len(places) or most:
            # All ranks grow alike, for a checkpoint joins their overlays.
            room = _ROOM
            while Share(room, 0, self.share.size).least < count:
                room *= 2
            mine = Share(room, self.share.rank, self.share.size).count
            if len(places) != mine:
                places, kept = blocks.new_empty(mine), rows.new_zeros(mine, rows.shape[1])
                grown = {"overlay_blocks": places, "overlay_rows": kept}
                writes.append(partial(self.buffers.update, grown))
        count = len(blocks)
        ordered, order = blocks.sort()
        return [
            *writes,
            partial(places[:count].copy_, ordered),
            partial(places[count:].fill_, _NONE),
            partial(kept[:count].copy_, rows[order]),
        ]

    def sort_overlay(self) -> None:
        """Keep of an overlay that other ranks wrote what belongs to this one."""
        blocks, rows = self.buffers["overlay_blocks"], self.buffers["overlay_rows"]
        mine = (blocks >= self.share.start) & (blocks < self.share.stop)
        commit(self.overlay(blocks[mine], rows[mine], most=int((blocks != _NONE).sum())))

    def fill(self, rows: Tensor, *, step: int) -> Writes:
        """Changes that give every row its value, or all the same one: a visit at ``step``."""
        buffers = self.buffers
        writes: Writes = [
            partial(buffers["rows"].copy_, rows),
            partial(buffers["visited"].fill_, True),
        ]
        if "last_visit" in buffers:
            writes.append(partial(buffers["last_visit"].fill_, step))
        if "written" in buffers:
            writes.append(partial(buffers["written"].fill_, float(buffers["clock"][1])))
        return writes

    def whole(self) -> Tensor:
        """u_t of all blocks of this rank; O(m), for exact passes."""
        if "written" not in self.buffers:
            return self.buffers["rows"]
        return self._shrunk(self.buffers["rows"], self.buffers["written"], Point.CURRENT)

    def keep_snapshot(self, anchor: Tensor, samples: Tensor, *, filled: bool) -> Writes:
        """Changes that keep the exact values of a snapshot, and the rows of that time.

        Args:
            anchor: the exact values.
            samples: behind them.
            filled: whether every row is given its value before, by ``fill``.
        """
        buffers = self.buffers
        writes: Writes = [
            partial(buffers["anchor"].copy_, anchor),
            partial(buffers["samples"].copy_, samples),
        ]
        if "snapshot" in buffers:
            rows = buffers["rows"] if filled else self.whole()
            writes.append(partial(buffers["snapshot"].copy_, rows))
        return writes

    def follow(self, device: torch.device) -> None:
        """Move the rows (and all that belongs to them) to ``device``, if they lie elsewhere."""
        if self.buffers["rows"].device == device:
            return
        for name, tensor in self.buffers.items():
            if name not in REPLICATED:  # what the host reads stays there
                self.buffers[name] = tensor.to(device)

    def _places(self, blocks: Tensor) -> Tensor:
        """The rows of ``blocks`` here."""
        places = blocks.to(self.buffers["rows"].device)
        return places - self.share.start if self.share.start else places

    def _rows(self, places: Tensor, point: Point) -> Tensor:
        """The rows as they are now, or (previous) as they were one step ago but for its batch."""
        rows = self.buffers["rows"][places]
        if "written" in self.buffers:
            rows = self._shrunk(rows, self.buffers["written"][places], point)
        return rows

    def _shrunk(self, rows: Tensor, written: Tensor, point: Point) -> Tensor:
        now = float(self.buffers["clock"][1 if point is Point.CURRENT else 0])
        factor = torch.exp(now - written).unsqueeze(1).to(self.dtype)
        if self.scaled:
            return torch.cat([rows[:, :-1] * factor, rows[:, -1:]], dim=1)
        return rows * factor
