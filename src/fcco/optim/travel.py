"""How a table travels: as one tensor of all ranks' rows, to be cut anew for any number of them."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fcco.distributed import Ranks
from fcco.kernel.table import REPLICATED, RESIZED, BlockTable

__all__ = ["pack_table", "unpack_table"]


def pack_table(table: BlockTable, ranks: Ranks) -> dict[str, Tensor]:
    """The buffers as they are saved: with several ranks, each a share of a DTensor."""
    if ranks.size == 1:
        return table.buffers
    packed = {}
    for name, part in table.buffers.items():
        if name in REPLICATED:
            packed[name] = part
            continue
        total = table.room if name in RESIZED else table.num_blocks
        packed[name] = ranks.sharded(part, total)
    return packed


def unpack_table(saved: Mapping[str, Any], table: BlockTable) -> dict[str, Any]:
    """Of saved buffers what this rank needs: its rows, and the whole overlay.

    A state that one process saved holds plain tensors of all rows.
    """
    start, stop = table.share.start, table.share.stop
    unpacked = {}
    for name, value in saved.items():
        if hasattr(value, "full_tensor"):
            unpacked[name] = value.full_tensor() if name in RESIZED else value.to_local()
        elif name in RESIZED or name in REPLICATED or len(value) != table.num_blocks:
            unpacked[name] = value
        else:
            unpacked[name] = value[start:stop]
    return unpacked
