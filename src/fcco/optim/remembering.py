"""The state of an optimizer, and how it is extended, saved, loaded and pickled."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from fcco.distributed import Ranks
from fcco.kernel.interrupts import defer_interrupts
from fcco.kernel.queries import Queries
from fcco.kernel.table import Table
from fcco.methods import Method
from fcco.optim.memory import Position, empty_state, fresh_state, is_known
from fcco.optim.state_dict import (
    SHARED,
    check_groups,
    copy_pair,
    pack_groups,
    pair_shared,
    pair_states,
    unpack_groups,
)
from fcco.updates import Update

__all__ = ["RememberingOptimizer"]


class RememberingOptimizer(Optimizer):
    """Base class that holds, saves and loads the state of an optimizer.

    z and the older points are in ``state[p]``, u is in ``table``, and the counters are separate.
    With several ranks, each rank holds the rows of its own blocks; everything else is equal on all
    ranks. A subclass sets the attributes below before it calls ``__init__``, and the table after.
    """

    method: Method
    update: Update
    ranks: Ranks
    table: Table | None
    """u of this rank's blocks, or None for a method without a table."""
    _progress: dict[str, Tensor]
    """The tensors of a ``Position``."""
    _pickled: tuple[str, ...] = ("method", "update", "ranks", "table", "_progress")
    """The attributes that pickling keeps, besides torch's own."""

    @property
    def queries(self) -> Queries:
        """The number of oracle queries so far, of all ranks."""
        now = Position.read(self._progress)
        return Queries(now.values, now.gradients)

    def _trainable(self) -> list[Tensor]:
        params = [p for p in self._all_params() if p.requires_grad]
        if not params:
            raise ValueError("no trainable parameter: every parameter has requires_grad=False")
        return params

    def _all_params(self) -> Iterator[Tensor]:
        return (p for group in self.param_groups for p in group["params"])

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; its z starts at zero and its previous point is the current one."""
        super().add_param_group(param_group)
        params = self.param_groups[-1]["params"]
        try:
            states = [self._new_state(p) if p.requires_grad else self._no_state() for p in params]
            if any(SHARED in group for group in self.param_groups):  # the optimizer is complete
                self._check_added(params)
        except ValueError:
            self.param_groups.pop()
            raise
        for p, state in zip(params, states, strict=True):
            self.state[p].update(state)

    def _check_added(self, params: list[Tensor]) -> None:
        """Raise a ``ValueError`` if no step could be taken with the group that was added."""

    def _new_state(self, p: Tensor) -> dict[str, Any]:
        return fresh_state(p, self.method, self.update)

    def _no_state(self) -> dict[str, Any]:
        return empty_state(self.method, self.update)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state; with several ranks the table is one shared DTensor."""
        for before in self._optimizer_state_dict_pre_hooks.values():
            before(self)
        for p in self._all_params():  # a parameter may have been unfrozen since the last step
            if p.requires_grad and not is_known(self.state[p]):
                self.state[p] = self._new_state(p)
        ids = {p: number for number, p in enumerate(self._all_params())}
        groups = []
        for group in self.param_groups:
            groups.append({**group, "params": [ids[p] for p in group["params"]]})
            # The key is a placeholder for torch; the table itself is added by ``pack_groups``.
            groups[-1].pop(SHARED, None)
        shared = {"progress": self._progress}
        if self.table is not None:
            shared["table"] = self.table.pack(self.ranks)
        state_dict = {
            "state": {ids.get(p, p): entry for p, entry in self.state.items()},
            "param_groups": pack_groups(groups, shared),
        }
        for after in self._optimizer_state_dict_post_hooks.values():
            changed = after(self, state_dict)
            state_dict = state_dict if changed is None else changed
        return state_dict

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the whole state bit for bit; a state of another method or size is an error.

        Values are copied to the precision and the device that this optimizer uses. With several
        ranks, all of them must call this method. torch's own method would cast the state to the
        parameters' precision and copy the table once more.
        """
        saved = state_dict.copy()
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            changed = before(self, saved)
            saved = saved if changed is None else changed
        groups, shared = unpack_groups(saved["param_groups"])
        check_groups(self.param_groups, groups)
        pairs = pair_shared(self._progress, self.table, shared)
        more, states = pair_states(
            self.state,
            self.param_groups,
            {"state": saved["state"], "param_groups": groups},
            fresh=self._new_state,
            empty=self._no_state,
            itself=shared["progress"]["step"] is self._progress["step"],
        )
        # Keep the live parameters and their names. All settings of a group are the saved ones.
        merged = []
        for live, group in zip(self.param_groups, groups, strict=True):
            del group["params"]
            kept = {name: live[name] for name in ("params", "param_names", SHARED) if name in live}
            merged.append(kept | deepcopy(group))
        # Everything was paired and checked above, so that an error cannot leave half a state.
        with defer_interrupts():
            for pair in pairs + more:
                copy_pair(*pair)
            self.state.update(states)
            self.param_groups = merged
            if self.table is not None:
                self.table.keep_own_overlay()
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    def __getstate__(self) -> dict[str, Any]:
        # torch keeps defaults, groups and state. Hooks, and a scheduler's wrapper around ``step``,
        # belong to this process and are not pickled.
        return super().__getstate__() | {name: getattr(self, name) for name in self._pickled}
