"""Who owns the triple (w, u, z), and how it travels: state_dict, pickling, new groups."""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, ParamsT

from fcco.distributed import Ranks
from fcco.kernel.queries import Queries
from fcco.kernel.rows import rows_of
from fcco.kernel.storage import Place, zeros_at
from fcco.kernel.table import BlockTable
from fcco.kernel.writes import Writes, commit
from fcco.methods import Method
from fcco.optim.arguments import check_initial
from fcco.optim.counters import Counters
from fcco.optim.matching import copies, match_groups, match_shared, match_states
from fcco.optim.memory import build_table, empty_state, fresh_state, known, wide
from fcco.optim.travel import SHARED, pack_groups, pack_table, unpack_groups, unpack_table
from fcco.problem import Objective
from fcco.updates import Update

__all__ = ["BlockOptimizer", "Params"]

Params = ParamsT | nn.Module
"""Parameters, parameter groups, or a module, which also brings its buffers."""


class BlockOptimizer(Optimizer):
    """An optimizer that remembers: z and the points in ``state``, the table and the counters apart.

    What all parameters share travels with the parameter groups of ``state_dict``, whoever of them
    is frozen (``fcco.optim.travel``).

    With several ranks each holds the rows of its own blocks, and everything else is alike.
    """

    parts = {
        "objective",
        "method",
        "update",
        "ranks",
        "_buffers",
        "_dtype",
        "_share",
        "_shared",
        "_table_on",
    }
    """The attributes that pickling keeps."""

    def __init__(
        self,
        params: Params,
        defaults: dict[str, Any],
        *,
        objective: Objective,
        method: Method,
        update: Update,
        buffers: Iterable[Tensor],
        initial: Tensor | float | None,
        table_on: Place,
        ranks: Ranks | None,
    ) -> None:
        check_initial(initial, objective)
        self.objective = objective
        self.method = method
        self.update = update
        self.ranks = Ranks() if ranks is None else ranks
        self._share = share = self.ranks.share(objective.num_blocks)
        if share.least == 0:
            raise ValueError(f"{share.total} blocks cannot be shared by {share.size} ranks")
        self._buffers: list[Tensor] | nn.Module = list(buffers)
        if isinstance(params, nn.Module):
            if self._buffers:
                raise ValueError("a module brings its own buffers: leave out buffers=")
            self._buffers, params = params, params.parameters()
        self._table_on = table_on
        super().__init__(params, defaults)
        device = self._trainable()[0].device
        self._dtype = torch.float32
        for p in self._all_params():
            self._dtype = torch.promote_types(self._dtype, p.dtype)
        if isinstance(initial, Tensor):
            self._dtype = wide(initial.dtype)
        self._shared = {"progress": Counters.start()}
        if method.inner is not None:
            table = build_table(
                rows_of(objective),
                method,
                share,
                dtype=self._dtype,
                zeros=zeros_at(table_on, device),
                gamma=defaults["gamma"],
                beta=defaults["beta"],
                inner_dim=objective.inner_dim,
                initial=initial,
            )
            self._shared["table"] = table.buffers
        # torch, unflattening a state, takes of a group what the live one names.
        next(group for group in self.param_groups if group["params"])[SHARED] = [*self._shared]
        self._view_state()

    def _view_state(self) -> None:
        """What is derived from the parts, once; the dictionaries they hold stay."""
        self._rows = rows_of(self.objective)
        self._remembered = tuple(self.update.init(torch.zeros(0)))
        self._counters = Counters(self._shared["progress"])
        self.table: BlockTable | None = None
        """u of this rank's blocks, or None for a method that has none."""
        if "table" in self._shared:
            self.table = BlockTable(self._shared["table"], self._share, scaled=self._rows.scaled)

    @property
    def queries(self) -> Queries:
        """Oracle queries so far, of all ranks, counted exactly."""
        now = self._counters.position()
        return Queries(now.values, now.gradients)

    def _trainable(self) -> list[Tensor]:
        params = [p for p in self._all_params() if p.requires_grad]
        if not params:
            raise ValueError("no trainable parameter: every parameter has requires_grad=False")
        return params

    def _all_params(self) -> Iterator[Tensor]:
        return (p for group in self.param_groups for p in group["params"])

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; its z starts at zero and its previous point where it stands."""
        super().add_param_group(param_group)
        params = self.param_groups[-1]["params"]
        for p in params:
            expanded = any(n > 1 and not step for n, step in zip(p.shape, p.stride(), strict=True))
            if expanded or p.is_complex():
                self.param_groups.pop()
                raise ValueError(
                    "a parameter is expanded: several of its entries are one number"
                    if expanded
                    else "a parameter is complex: train its real view (torch.view_as_real) instead"
                )
        for p in params:
            self.state[p].update(self._fresh(p) if p.requires_grad else self._empty())

    def _fresh(self, p: Tensor) -> dict[str, Any]:
        return fresh_state(p, self.method, self.update)

    def _empty(self) -> dict[str, Any]:
        return empty_state(self.method, self.update)

    def state_dict(self) -> dict[str, Any]:
        """Everything; with several ranks the table is one DTensor of which each has its share."""
        for before in self._optimizer_state_dict_pre_hooks.values():
            before(self)
        for p in self._all_params():  # one that thawed since the last step
            if p.requires_grad and not known(self.state[p]):
                self.state[p] = self._fresh(p)
        ids = {p: number for number, p in enumerate(self._all_params())}
        groups = []
        for group in self.param_groups:
            groups.append({**group, "params": [ids[p] for p in group["params"]]})
            groups[-1].pop(SHARED, None)
        shared = dict(self._shared)
        if self.table is not None:
            shared["table"] = pack_table(self.table, self.ranks)
        state_dict = {
            "state": {ids.get(p, p): entry for p, entry in self.state.items()},
            "param_groups": pack_groups(groups, shared),
        }
        for after in self._optimizer_state_dict_post_hooks.values():
            changed = after(self, state_dict)
            state_dict = state_dict if changed is None else changed
        return state_dict

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore everything, bit for bit; a state of another method or size is an error.

        Values are copied, in the precision and to the place this optimizer keeps them in. With
        several ranks all of them must call it. torch's own would cast the state to the parameters'
        precision, and copy the table once more.
        """
        saved = state_dict.copy()
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            changed = before(self, saved)
            saved = saved if changed is None else changed
        groups, shared = unpack_groups(saved["param_groups"])
        match_groups(self.param_groups, groups)
        if self.table is not None and "table" in shared:
            shared = {**shared, "table": unpack_table(shared["table"], self.table)}
        pairs = match_shared(self._shared, shared)
        own, states = match_states(
            self.state,
            self.param_groups,
            {"state": saved["state"], "param_groups": groups},
            fresh=self._fresh,
            empty=self._empty,
            itself=shared["progress"]["step"] is self._shared["progress"]["step"],
        )
        merged = []
        for live, group in zip(self.param_groups, groups, strict=True):
            del group["params"]
            kept = {name: live[name] for name in ("params", "param_names", SHARED) if name in live}
            merged.append(kept | deepcopy(group))
        writes: Writes = copies(pairs + own)
        writes.append(partial(self.state.update, states))
        writes.append(partial(setattr, self, "param_groups", merged))
        commit(writes)
        if self.table is not None and "overlay_blocks" in self.table.buffers:
            self.table.sort_overlay()
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    def __getstate__(self) -> dict[str, Any]:
        # torch keeps defaults, groups and state; hooks, and a scheduler's wrapper around step,
        # belong to the process.
        own = {name: part for name, part in self.__dict__.items() if name in self.parts}
        return super().__getstate__() | own

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._view_state()
