"""The table u: one row of tracked inner values a block, with the generations slopes need."""

import math

import torch
from torch import Tensor

from fcco.point import Point

__all__ = ["BlockTable"]

_WIPED = -750.0
"""Stands for log(1 - beta) at beta = 1: exp of it is exactly zero, and sums of it stay finite."""


class BlockTable:
    """u_t for every block; a step reads and writes O(B1) rows.

    All state lies in ``buffers``, a flat dictionary of tensors that the optimizer keeps in its
    ``state``, so that it travels with ``state_dict``. What a method does not need is not there.

    Args:
        buffers: the tensors.
        scaled: the last column of a row is the log-scale of the first ``scaled`` ones; 0: there is
            no log-scale (``fcco.rows``).

    Examples:
        >>> table = BlockTable.build(5, 1, dtype=torch.float32, device=torch.device("cpu"))
        >>> blocks = torch.tensor([3])
        >>> table.write(blocks, table.gather(blocks), torch.ones(1, 1), step=1, beta=0.1)
        >>> table.read(torch.tensor([2, 3])).tolist()
        [[0.0], [1.0]]
    """

    def __init__(self, buffers: dict[str, Tensor], *, scaled: int = 0) -> None:
        self.buffers = buffers
        self.scaled = scaled

    @classmethod
    def build(
        cls,
        num_blocks: int,
        width: int,
        *,
        scaled: int = 0,
        dtype: torch.dtype,
        device: torch.device,
        ages: bool = False,
        previous: bool = False,
        anchor: bool = False,
        snapshot: bool = False,
        shrinks: bool = False,
    ) -> "BlockTable":
        """An empty table.

        Args:
            num_blocks: m.
            width: of a row: p, or p + 1 with a log-scale.
            scaled: how many leading columns have a log-scale in the last.
            dtype: of the rows.
            device: of the rows.
            ages: keep the step of each row's last visit (gamma = "age").
            previous: keep u_{t-2}, as an overlay of the last batch's old rows.
            anchor: keep the exact values of the last snapshot.
            snapshot: keep the rows as they were when the snapshot was taken.
            shrinks: rows shrink by 1 - beta in each step, which is applied when they are read.
        """
        shape = (num_blocks, width)
        buffers = {
            "rows": torch.zeros(shape, dtype=dtype, device=device),
            "visited": torch.zeros(num_blocks, dtype=torch.bool, device=device),
        }
        if ages:
            buffers["last_visit"] = torch.zeros(num_blocks, dtype=torch.int32, device=device)
        if previous:
            buffers["overlay_blocks"] = torch.zeros(0, dtype=torch.int64, device=device)
            buffers["overlay_rows"] = torch.zeros((0, width), dtype=dtype, device=device)
        if anchor:
            buffers["anchor"] = torch.zeros(shape, dtype=dtype, device=device)
            buffers["samples"] = torch.zeros(num_blocks, dtype=torch.int64, device=device)
        if snapshot:
            buffers["snapshot"] = torch.zeros(shape, dtype=dtype, device=device)
        if shrinks:
            # Two readings of the clock sum_s log(1 - beta_s): one step ago, and now. A row
            # remembers the reading at which it was written.
            buffers["clock"] = torch.zeros(2, dtype=torch.float64)
            buffers["written"] = torch.zeros(num_blocks, dtype=torch.float64, device=device)
        return cls(buffers, scaled=scaled)

    @property
    def num_blocks(self) -> int:
        """m."""
        return self.buffers["rows"].shape[0]

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the rows."""
        return self.buffers["rows"].dtype

    @property
    def device(self) -> torch.device:
        """Where the rows lie."""
        return self.buffers["rows"].device

    def read(self, blocks: Tensor) -> Tensor:
        """u_t of ``blocks``, a copy, (k, p); 0 where a block was never visited.

        Of an objective that keeps log-scales, exp(scale) times the mantissas, which may overflow:
        ``gather`` has both apart.
        """
        blocks = torch.as_tensor(blocks, device=self.device)
        outside = (blocks < 0) | (blocks >= self.num_blocks)
        if outside.any():
            raise ValueError(
                f"block ids {blocks[outside].tolist()} lie outside 0..{self.num_blocks - 1}"
            )
        rows = self.gather(blocks)
        if not self.scaled:
            return rows
        factor = rows[:, -1:].exp()
        return torch.cat([rows[:, : self.scaled] * factor, rows[:, self.scaled : -1]], dim=1)

    def gather(self, blocks: Tensor, point: Point = Point.CURRENT) -> Tensor:
        """The rows whose slopes belong to ``point``; ids are not checked.

        u_{t-1} for the current point, u_{t-2} for the previous one, and the rows kept at the
        snapshot for that.
        """
        if point is Point.SNAPSHOT:
            return self.buffers["snapshot"][blocks]
        rows = self.buffers["rows"][blocks]
        if "written" in self.buffers:
            rows = self._shrunk(rows, self.buffers["written"][blocks], point)
        if point is Point.PREVIOUS and len(overlay := self.buffers["overlay_blocks"]):
            # u_{t-2} differs from u_{t-1} only on the rows that the last step wrote.
            place = torch.searchsorted(overlay, blocks).clamp_(max=len(overlay) - 1)
            hit = (overlay[place] == blocks).unsqueeze(1)
            rows = torch.where(hit, self.buffers["overlay_rows"][place], rows)
        return rows

    def unvisited(self, blocks: Tensor) -> Tensor:
        """Which of ``blocks`` have no value yet, shape (k, 1)."""
        return ~self.buffers["visited"][blocks].unsqueeze(1)

    def age(self, blocks: Tensor, step: int) -> Tensor:
        """Steps since each row's last visit, shape (k, 1)."""
        return step - self.buffers["last_visit"][blocks].unsqueeze(1)

    def anchor(self, blocks: Tensor) -> Tensor | None:
        """Exact inner values at the snapshot, if they are kept."""
        return self.buffers["anchor"][blocks] if "anchor" in self.buffers else None

    def write(self, blocks: Tensor, old: Tensor, new: Tensor, *, step: int, beta: float) -> None:
        """Replace u_{t-1} (``old``) by u_t (``new``) on the rows of ``blocks``."""
        if "overlay_blocks" in self.buffers:
            order = blocks.argsort()
            self.buffers["overlay_blocks"] = blocks[order]
            self.buffers["overlay_rows"] = old[order]
        if "written" in self.buffers:
            clock = self.buffers["clock"]
            clock[0] = clock[1]
            clock[1] += math.log1p(-beta) if beta < 1 else _WIPED
            self.buffers["written"][blocks] = float(clock[1])
        if "last_visit" in self.buffers:
            self.buffers["last_visit"][blocks] = step
        self.buffers["rows"].index_copy_(0, blocks, new)
        self.buffers["visited"][blocks] = True

    def fill(self, rows: Tensor, *, step: int) -> None:
        """Give every row its value, or all the same one; it counts as a visit at ``step``."""
        self.buffers["rows"].copy_(rows)
        self.buffers["visited"].fill_(True)
        if "last_visit" in self.buffers:
            self.buffers["last_visit"].fill_(step)
        if "written" in self.buffers:
            self.buffers["written"].fill_(float(self.buffers["clock"][1]))

    def whole(self) -> Tensor:
        """u_t of all blocks; O(m), for exact passes."""
        if "written" not in self.buffers:
            return self.buffers["rows"]
        return self._shrunk(self.buffers["rows"], self.buffers["written"], Point.CURRENT)

    def keep_snapshot(self, anchor: Tensor, samples: Tensor) -> None:
        """Keep the exact values of a snapshot and the rows as they are now."""
        self.buffers["anchor"].copy_(anchor)
        self.buffers["samples"].copy_(samples)
        if "snapshot" in self.buffers:
            self.buffers["snapshot"].copy_(self.whole())

    def to(self, device: torch.device) -> None:
        """Move the rows (and all that belongs to them) to ``device``."""
        for name, tensor in self.buffers.items():
            if name != "clock":  # read by the host, and stays there
                self.buffers[name] = tensor.to(device)

    def _shrunk(self, rows: Tensor, written: Tensor, point: Point) -> Tensor:
        now = float(self.buffers["clock"][1 if point is Point.CURRENT else 0])
        factor = torch.exp(now - written).unsqueeze(1).to(self.dtype)
        if self.scaled:
            return torch.cat([rows[:, :-1] * factor, rows[:, -1:]], dim=1)
        return rows * factor
