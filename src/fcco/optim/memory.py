"""What an optimizer remembers: creating it, and matching a saved state with a live one."""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from fcco.distributed import Share
from fcco.distributed.sharded import cut, local
from fcco.kernel.rows import Rows
from fcco.kernel.storage import Zeros
from fcco.kernel.table import RESIZED, BlockTable
from fcco.kernel.writes import commit
from fcco.methods import Gamma, Method, Point
from fcco.updates import Update

__all__ = [
    "ANCHOR_STEP",
    "SHARED",
    "build_table",
    "copy_state",
    "follow",
    "fresh_state",
    "match_state",
    "wide",
]

SHARED = ("table", "progress")
"""What one parameter's state holds on behalf of the whole optimizer."""

ANCHOR_STEP = "anchor_step"
"""The step at whose point a parameter's anchor was taken, as ``Position.snapshot_step``."""

Pairs = list[tuple[dict[str, Any], str, Tensor]]
"""(live dictionary, name, saved tensor)."""


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


def follow(state: dict[str, Any], device: torch.device) -> None:
    """Move a parameter's own state to the parameter's device."""
    for name in state.keys() - {*SHARED, ANCHOR_STEP}:  # the host reads the step
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
    )
    if isinstance(initial, Tensor):
        commit(table.fill(rows.pack(initial[share.start : share.stop]), step=0))
    elif initial is not None:
        one = torch.full((1, inner_dim), initial, dtype=dtype, device=table.device)
        commit(table.fill(rows.pack(one), step=0))
    return table


def match_state(
    live: Mapping[Tensor, dict[str, Any]],
    params: Iterable[Tensor],
    saved: Mapping[str, Any],
    fresh: Callable[[Tensor], dict[str, Tensor]],
) -> tuple[Pairs, dict[Tensor, dict[str, Any]]]:
    """Pair every live tensor with its saved one, so that nothing is lost or reset in silence.

    A ``ValueError`` names what does not fit.

    Args:
        live: ``optimizer.state``.
        params: all parameters in the order of the groups.
        saved: a ``state_dict``.
        fresh: makes the state of a parameter that has none here but had one when it was saved
            (it was frozen at first); these are returned beside the pairs.
    """
    params = list(params)
    ids = list(chain.from_iterable(group["params"] for group in saved["param_groups"]))
    if len(ids) != len(params):
        raise ValueError(f"the saved state has {len(ids)} parameters, this optimizer {len(params)}")
    pairs: Pairs = []
    # The common part may be held by another parameter than when it was saved.
    ours = next(entry for entry in live.values() if "progress" in entry)
    theirs: Mapping[str, Any] = next(
        (entry for entry in saved["state"].values() if "progress" in entry), {}
    )
    for name in SHARED:
        if (name in ours) != (name in theirs):
            raise ValueError(
                f"the saved state {'lacks' if name in ours else 'has'} the {name} of a "
                "compositional optimizer: it was saved by another optimizer or stripped on the way"
            )
    for name in SHARED:
        if name in ours and not isinstance(theirs[name], Mapping):
            raise ValueError(f"the saved {name} is that of an earlier version of fcco")
        if name in ours:
            _pair(pairs, ours[name], theirs[name], f"{name}.", ours[name])
    thawed: dict[Tensor, dict[str, Any]] = {}
    for number, (key, p) in enumerate(zip(ids, params, strict=True)):
        state = live.get(p, None)
        if state is None:
            if not saved["state"].get(key):
                continue
            state = thawed[p] = dict(fresh(p))
        mine = {name: value for name, value in state.items() if name not in SHARED}
        other = {
            name: value for name, value in saved["state"].get(key, {}).items() if name not in SHARED
        }
        _pair(pairs, mine, other, f"parameter {number}: ", state)
    return pairs, thawed


def copy_state(pairs: Pairs) -> None:
    """Copy saved tensors into live ones, keeping the precision and the device of the live."""
    for target, name, saved in pairs:
        value = target[name]
        if value.shape == saved.shape:
            local(value).copy_(local(cut(saved, value)))
        else:
            target[name] = saved.to(dtype=value.dtype, device=value.device, copy=True)


def _pair(
    pairs: Pairs,
    mine: Mapping[str, Tensor],
    other: Mapping[str, Tensor],
    where: str,
    target: dict[str, Any],
) -> None:
    for name in sorted(mine.keys() | other.keys()):
        if name not in other:
            raise ValueError(f"the saved state lacks {where}{name}: another method, or stripped?")
        if name not in mine:
            raise ValueError(f"the saved state has {where}{name}, which this method does not use")
        if not _finite(local(other[name])):
            raise ValueError(f"the saved {where}{name} has non-finite entries")
        if name not in RESIZED and mine[name].shape != other[name].shape:
            raise ValueError(
                f"the saved {where}{name} has shape {tuple(other[name].shape)}, here it is "
                f"{tuple(mine[name].shape)}"
            )
        pairs.append((target, name, other[name]))


def _finite(tensor: Tensor) -> bool:
    """By the least and the largest entry: a look at each would take the memory of a copy."""
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return True
    return bool(torch.stack(torch.aminmax(tensor)).isfinite().all())
