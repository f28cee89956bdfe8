"""Functions that save and load the state of an optimizer, so that nothing is lost silently.

The table and the counters, which all parameters share, are saved in a parameter group. This is
because ``torch.distributed.checkpoint.state_dict`` drops further top-level keys of a state dict,
and the state of parameters that are frozen when it is loaded. It drops nothing of parameter groups.

When torch flattens a state dict, it repeats a group's values for every parameter of the group. To
avoid many copies, the table is saved in an additional group that names only the first parameter.
The first group holds placeholders. torch merges the two, and writes a state that it gathered from
several ranks (``full_state_dict=True``) into the placeholders.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from fcco.distributed.sharded import cut, is_sharded, local
from fcco.kernel.table import Table
from fcco.optim.memory import is_known

__all__ = [
    "SHARED",
    "check_groups",
    "copy_pair",
    "pack_groups",
    "pair_shared",
    "pair_states",
    "unpack_groups",
]

SHARED = "shared"
"""Key of a parameter group under which the table and the counters are saved."""

Groups = list[dict[str, Any]]

Pair = tuple[Any, str, Tensor]
"""A live dictionary or table, a name in it, and the saved tensor to copy there."""


# Saving -------------------------------------------------------------------------------------------


def pack_groups(groups: Groups, shared: Mapping[str, Any]) -> Groups:
    """Return the groups in the form that is saved, together with ``shared``.

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
    # A placeholder is a scalar, by which ``_complete`` recognizes it.
    outline = {name: torch.zeros(()) for name in shared["table"]}
    first[SHARED] = {**shared, "table": outline}
    return [*groups, {"params": first["params"][:1], SHARED: shared}]


# Loading: first everything is paired and checked, then it is copied -------------------------------


def unpack_groups(saved: Sequence[Mapping[str, Any]]) -> tuple[Groups, Mapping[str, Any]]:
    """Return the groups of the optimizer, and the shared state, or {} if the table is missing.

    If two groups hold a complete table, the first one is used. When torch gathers a state, the
    additional group holds the table of the optimizer that loads it, not the saved one.
    """
    groups = [dict(group) for group in saved if group.keys() != {"params", SHARED}]
    found = [group[SHARED] for group in (*groups, *saved) if SHARED in group]
    for group in groups:
        group.pop(SHARED, None)
    complete = (shared for shared in found if isinstance(shared, Mapping) and _complete(shared))
    return groups, next(complete, {})


def _complete(shared: Mapping[str, Any]) -> bool:
    rows = shared.get("table", {}).get("rows")
    return rows is None or rows.dim() > 0


def check_groups(live: Groups, saved: Groups) -> None:
    """Raise a ``ValueError`` unless the groups have the same sizes."""
    ours, theirs = ([len(group["params"]) for group in groups] for groups in (live, saved))
    if sum(ours) != sum(theirs):
        raise ValueError(
            f"the saved state has {sum(theirs)} parameters, this optimizer {sum(ours)}"
        )
    if ours != theirs:
        raise ValueError(
            f"the saved state has parameter groups of sizes {theirs}, this optimizer {ours}"
        )


def pair_shared(
    progress: dict[str, Tensor], table: Table | None, saved: Mapping[str, Any]
) -> list[Pair]:
    """Pair the live counters and table with saved ones, or raise a ``ValueError``."""
    names = {"progress"} if table is None else {"progress", "table"}
    for verb, different in (("lacks", names - saved.keys()), ("has", saved.keys() - names)):
        if different:
            raise ValueError(
                f"the saved state {verb} the {' and the '.join(sorted(different))} of a "
                "compositional optimizer: it was saved by another optimizer or an earlier version "
                "of fcco, or a part of it was removed"
            )
    pairs = _pair(progress, progress, saved["progress"], "progress.")
    if table is not None:
        ours = {name: table.select(name, part) for name, part in saved["table"].items()}
        pairs += _pair(table, dict(table.named_buffers()), ours, "table.")
    return pairs


def pair_states(
    live: Mapping[Tensor, dict[str, Any]],
    groups: Groups,
    saved: Mapping[str, Any],
    *,
    fresh: Callable[[Tensor], dict[str, Any]],
    empty: Callable[[], dict[str, Any]],
    itself: bool,
) -> tuple[list[Pair], dict[Tensor, dict[str, Any]]]:
    """Pair the live states of single parameters with saved ones.

    A ``ValueError`` names what does not fit. A parameter without a saved state starts anew when it
    is next trained. This happens if it was never trained, or if it is frozen and
    torch.distributed.checkpoint skipped it.

    Args:
        live: ``optimizer.state``.
        groups: ``optimizer.param_groups``.
        saved: a ``state_dict`` whose groups match these.
        fresh: a function that makes a state to copy into.
        empty: a function that makes the state of a parameter without a saved state.
        itself: whether the optimizer loads its own state.

    Returns:
        The pairs, and the new state of every parameter.
    """
    params: Iterable[Tensor] = chain.from_iterable(group["params"] for group in groups)
    keys = chain.from_iterable(group["params"] for group in saved["param_groups"])
    pairs: list[Pair] = []
    states = {}
    for number, (key, p) in enumerate(zip(keys, params, strict=True)):
        mine, theirs = live.get(p, {}), saved["state"].get(key) or {}
        if not theirs and p.requires_grad:
            raise ValueError(
                f"the saved state has nothing of parameter {number}, which is trainable: is it of "
                'another model, or was it removed? (The entry {"z": {}} lets it start anew.)'
            )
        # Empty dictionaries are the placeholders of ``empty_state``.
        there = {
            name: value
            for name, value in theirs.items()
            if not (isinstance(value, Mapping) and not value)
        }
        if not there or not (itself or _was_saved(there, mine, p)):
            states[p] = empty()
            continue
        states[p] = mine if is_known(mine) else fresh(p)
        pairs += _pair(states[p], states[p], there, f"parameter {number}: ")
    return pairs, states


def _was_saved(there: Mapping[str, Any], mine: Mapping[str, Any], p: Tensor) -> bool:
    """Return whether ``there`` was saved, and is not the live state that torch filled in.

    With ``full_state_dict=True`` torch fills in the live tensors for what was not saved. For a
    sharded trainable parameter it copies saved values into these tensors, so they count as saved.
    """
    own = all(value is mine.get(name) for name, value in there.items())
    return not own or (p.requires_grad and is_sharded(p))


def _pair(
    owner: Any, mine: Mapping[str, Tensor], saved: Mapping[str, Any], where: str
) -> list[Pair]:
    pairs: list[Pair] = []
    for name in sorted(mine.keys() | saved.keys()):
        if name == "gain" and (name in mine) != (name in saved):
            raise ValueError(
                'of the saved state and this optimizer only one was built with beta="auto": build '
                "the optimizer as the saved one was"
            )
        if name not in saved:
            raise ValueError(
                f"the saved state lacks {where}{name}: is it of another method, or was it removed?"
            )
        if name not in mine:
            raise ValueError(f"the saved state has {where}{name}, which this method does not use")
        value = saved[name]
        if not isinstance(value, Tensor):
            raise ValueError(f"the saved {where}{name} is no tensor: {type(value).__name__}")
        if not _all_finite(local(value)):
            raise ValueError(f"the saved {where}{name} has non-finite entries")
        # An overlay has the length of the last batch, which may differ from the live one.
        if name not in Table.RESIZED and mine[name].shape != value.shape:
            raise ValueError(
                f"the saved {where}{name} has shape {tuple(value.shape)}, here it is "
                f"{tuple(mine[name].shape)}"
            )
        pairs.append((owner, name, value))
    return pairs


def _all_finite(tensor: Tensor) -> bool:
    """Return whether all entries are finite, without a temporary tensor of the same size."""
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return True
    # aminmax propagates NaN, so the two extremes are finite only if every entry is.
    return bool(torch.stack(torch.aminmax(tensor)).isfinite().all())


def copy_pair(owner: Any, name: str, saved: Tensor) -> None:
    """Copy a saved tensor, keeping the precision and the device of the live one."""
    value = owner[name] if isinstance(owner, dict) else getattr(owner, name)
    if value.shape == saved.shape:
        local(value).copy_(local(cut(saved, value)))
    else:  # an overlay of another length
        setattr(owner, name, saved.to(dtype=value.dtype, device=value.device, copy=True))
