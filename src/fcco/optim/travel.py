"""How the state that all parameters share (table and counters) is saved: in a parameter group.

``torch.distributed.checkpoint.state_dict`` drops further top-level keys of a state dict, and the
state of parameters that are frozen when it is loaded. It drops nothing of parameter groups. But
when it flattens a state dict, it repeats a group's values for every parameter of the group. So the
table is saved in an additional group that names only the first parameter, and the first group holds
placeholders: torch merges the two, and writes a state that it gathered from several ranks
(``full_state_dict=True``) into the placeholders.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fcco.distributed import Ranks
from fcco.kernel.table import REPLICATED, RESIZED, BlockTable

__all__ = ["SHARED", "pack_groups", "pack_table", "unpack_groups", "unpack_table"]

SHARED = "shared"
"""The key of a group under which the table and the counters travel."""

Groups = list[dict[str, Any]]


def pack_groups(groups: Groups, shared: Mapping[str, Any]) -> Groups:
    """The groups as they are saved, with ``shared``.

    Examples:
        >>> shared = {"progress": {"step": torch.tensor(3)}, "table": {"rows": torch.zeros(9, 1)}}
        >>> first, further = pack_groups([{"params": [0, 1], "lr": 0.1}], shared)
        >>> first["shared"]
        {'progress': {'step': tensor(3)}, 'table': {'rows': tensor(0.)}}
        >>> further["params"], further["shared"] is shared
        ([0], True)
    """
    first = next(group for group in groups if group["params"])
    if "table" not in shared or not all(group["params"] for group in groups):
        # torch cannot flatten an empty group, and then accepts no additional one either.
        first[SHARED] = shared
        return groups
    outline = {name: torch.zeros(()) for name in shared["table"]}
    first[SHARED] = {**shared, "table": outline}
    return [*groups, {"params": first["params"][:1], SHARED: shared}]


def unpack_groups(saved: Sequence[Mapping[str, Any]]) -> tuple[Groups, Mapping[str, Any]]:
    """The groups of the optimizer, and the shared state, or nothing if the table is missing.

    If two groups hold a complete table, the first one counts: when torch gathers a state, the
    additional group holds the table of the optimizer that loads it.
    """
    groups = [dict(group) for group in saved if group.keys() != {"params", SHARED}]
    found = [group[SHARED] for group in (*groups, *saved) if SHARED in group]
    for group in groups:
        group.pop(SHARED, None)
    whole = (shared for shared in found if isinstance(shared, Mapping) and _whole(shared))
    return groups, next(whole, {})


def _whole(shared: Mapping[str, Any]) -> bool:
    rows = shared.get("table", {}).get("rows")
    return rows is None or rows.dim() > 0


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
