"""What an optimizer remembers of every parameter, and the table: how both begin."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fcco.distributed import Share
from fcco.kernel.rows import Rows
from fcco.kernel.storage import Zeros
from fcco.kernel.table import BlockTable
from fcco.kernel.writes import commit
from fcco.methods import Beta, Gamma, Method, Point
from fcco.updates import Update

__all__ = ["ANCHOR_STEP", "build_table", "empty_state", "follow", "fresh_state", "known", "wide"]

ANCHOR_STEP = "anchor_step"
"""The step at whose point a parameter's anchor was taken, as ``Position.snapshot_step``."""


def wide(dtype: torch.dtype) -> torch.dtype:
    """The precision state is kept in for a parameter of ``dtype``: at least float32.

    Examples:
        >>> wide(torch.bfloat16), wide(torch.float64)
        (torch.float32, torch.float64)
    """
    return torch.promote_types(dtype, torch.float32)


def fresh_state(p: Tensor, method: Method, update: Update) -> dict[str, Tensor]:
    """z = 0, the points where p stands now, and what the step rule wants to remember."""
    z = torch.zeros_like(p, dtype=wide(p.dtype), requires_grad=False)
    points = {point.value: p.detach().clone() for point in method.points}
    anchor = {}
    if method.anchored:
        # The snapshot that the anchor belongs to: none yet.
        anchor = {"anchor": torch.zeros_like(z), ANCHOR_STEP: torch.zeros((), dtype=torch.int64)}
    return {"z": z} | points | anchor | update.init(z)


def empty_state(method: Method, update: Update) -> dict[str, dict[str, Tensor]]:
    """The state of a parameter that was never trained: only the names.

    torch.distributed.checkpoint looks for what a live state names, and asks for an entry of every
    trainable parameter. An empty dictionary is what it makes itself of a name it does not find.

    Examples:
        >>> from fcco.methods import SOX
        >>> from fcco.updates import Adam
        >>> empty_state(SOX, Adam())
        {'z': {}, 'h': {}, 'h_weight': {}}
    """
    return {name: {} for name in fresh_state(torch.zeros(0), method, update)}


def known(state: Mapping[str, Any]) -> bool:
    """Whether there is anything behind the names.

    Examples:
        >>> known({"z": {}}), known({"z": torch.zeros(2)})
        (False, True)
    """
    return isinstance(state.get("z"), Tensor)


def follow(state: dict[str, Any], device: torch.device) -> None:
    """Move a parameter's state to the parameter's device."""
    for name in state.keys() - {ANCHOR_STEP}:  # the host reads the step
        state[name] = state[name].to(device)


def build_table(
    rows: Rows,
    method: Method,
    share: Share,
    *,
    dtype: torch.dtype,
    zeros: Zeros,
    gamma: Gamma,
    inner_dim: int,
    initial: Tensor | float | None,
    beta: Beta = 0.5,
) -> BlockTable:
    """The table ``method`` needs for the blocks of ``share``, filled with ``initial`` if given."""
    table = BlockTable.build(
        share,
        rows.width,
        scaled=rows.scaled,
        dtype=dtype,
        zeros=zeros,
        ages=gamma == "age",
        previous=Point.PREVIOUS in method.generations,
        anchor=method.anchored,
        snapshot=Point.SNAPSHOT in method.generations,
        shrinks=method.shrinks,
        gain=beta == "auto",
    )
    if isinstance(initial, Tensor):
        commit(table.fill(rows.pack(initial[share.start : share.stop]), step=0))
    elif initial is not None:
        one = torch.full((1, inner_dim), initial, dtype=dtype, device=table.device)
        commit(table.fill(rows.pack(one), step=0))
    return table
