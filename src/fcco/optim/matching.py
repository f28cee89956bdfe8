"""Matching a saved state with a live one, so that nothing is lost or reset in silence."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from fcco.distributed.sharded import cut, is_sharded, local
from fcco.kernel.table import RESIZED
from fcco.kernel.writes import Writes
from fcco.optim.memory import known

__all__ = ["copies", "match_groups", "match_shared", "match_states"]

Pairs = list[tuple[dict[str, Any], str, Tensor]]
"""(live dictionary, name, saved tensor)."""

Groups = list[dict[str, Any]]


def match_groups(live: Groups, saved: Groups) -> None:
    """Raise a ``ValueError`` unless the groups are of the same sizes."""
    ours, theirs = ([len(group["params"]) for group in groups] for groups in (live, saved))
    if sum(ours) != sum(theirs):
        raise ValueError(
            f"the saved state has {sum(theirs)} parameters, this optimizer {sum(ours)}"
        )
    if ours != theirs:
        raise ValueError(
            f"the saved state has parameter groups of sizes {theirs}, this optimizer {ours}"
        )


def match_shared(live: dict[str, dict[str, Tensor]], saved: Mapping[str, Any]) -> Pairs:
    """Pair the table and the counters; a ``ValueError`` names what does not fit."""
    for verb, names in (("lacks", live.keys() - saved.keys()), ("has", saved.keys() - live.keys())):
        if names:
            raise ValueError(
                f"the saved state {verb} the {' and the '.join(sorted(names))} of a compositional "
                "optimizer: it was saved by another optimizer or an earlier version of fcco, or "
                "stripped on the way"
            )
    pairs: Pairs = []
    for name in live:
        _pair(pairs, live[name], saved[name], f"{name}.")
    return pairs


def match_states(
    live: Mapping[Tensor, dict[str, Any]],
    groups: Groups,
    saved: Mapping[str, Any],
    *,
    fresh: Callable[[Tensor], dict[str, Any]],
    empty: Callable[[], dict[str, Any]],
    itself: bool,
) -> tuple[Pairs, dict[Tensor, dict[str, Any]]]:
    """Pair what belongs to single parameters; a ``ValueError`` names what does not fit.

    A parameter of which nothing was saved, because it was never trained or because it is frozen
    and torch.distributed.checkpoint passed over it, starts anew when it is next trained.

    Args:
        live: ``optimizer.state``.
        groups: ``optimizer.param_groups``.
        saved: a ``state_dict`` whose groups match these.
        fresh: makes a state to copy into.
        empty: makes the state of a parameter of which nothing is known.
        itself: whether the optimizer loads its own state.

    Returns:
        The pairs, and the states that parameters will have.
    """
    params: Iterable[Tensor] = chain.from_iterable(group["params"] for group in groups)
    keys = chain.from_iterable(group["params"] for group in saved["param_groups"])
    pairs: Pairs = []
    states = {}
    for number, (key, p) in enumerate(zip(keys, params, strict=True)):
        mine, theirs = live.get(p, {}), saved["state"].get(key) or {}
        if not theirs and p.requires_grad:
            raise ValueError(
                f"the saved state has nothing of parameter {number}, which is trainable: another "
                'model, or stripped? (The entry {"z": {}} lets it start anew.)'
            )
        there = {
            name: value
            for name, value in theirs.items()
            if not (isinstance(value, Mapping) and not value)
        }
        if not there or not (itself or _saved(there, mine, p)):
            states[p] = empty()
            continue
        states[p] = mine if known(mine) else fresh(p)
        _pair(pairs, states[p], there, f"parameter {number}: ")
    return pairs, states


def _saved(there: Mapping[str, Any], mine: Mapping[str, Any], p: Tensor) -> bool:
    """Whether this was saved: with ``full_state_dict=True`` torch fills in the optimizer's own.

    Into that of a sharded parameter that is trained it may have copied what was saved.
    """
    own = all(value is mine.get(name) for name, value in there.items())
    return not own or (p.requires_grad and is_sharded(p))


def copies(pairs: Pairs) -> Writes:
    """Changes that copy saved tensors, keeping the precision and the device of the live."""
    writes: Writes = []
    for target, name, saved in pairs:
        value = target[name]
        if value.shape == saved.shape:
            writes.append(partial(local(value).copy_, local(cut(saved, value))))
        else:
            new = saved.to(dtype=value.dtype, device=value.device, copy=True)
            writes.append(partial(target.update, {name: new}))
    return writes


def _pair(pairs: Pairs, mine: dict[str, Tensor], other: Mapping[str, Any], where: str) -> None:
    for name in sorted(mine.keys() | other.keys()):
        if name == "gain" and (name in mine) != (name in other):
            raise ValueError(
                'of the saved state and this optimizer only one was built with beta="auto": build '
                "the optimizer as the saved one was"
            )
        if name not in other:
            raise ValueError(f"the saved state lacks {where}{name}: another method, or stripped?")
        if name not in mine:
            raise ValueError(f"the saved state has {where}{name}, which this method does not use")
        if not isinstance(other[name], Tensor):
            raise ValueError(f"the saved {where}{name} is no tensor: {type(other[name]).__name__}")
        if not _finite(local(other[name])):
            raise ValueError(f"the saved {where}{name} has non-finite entries")
        if name not in RESIZED and mine[name].shape != other[name].shape:
            raise ValueError(
                f"the saved {where}{name} has shape {tuple(other[name].shape)}, here it is "
                f"{tuple(mine[name].shape)}"
            )
        pairs.append((mine, name, other[name]))


def _finite(tensor: Tensor) -> bool:
    """By the least and the largest entry: a look at each would take the memory of a copy."""
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return True
    return bool(torch.stack(torch.aminmax(tensor)).isfinite().all())
