"""Who owns the triple (w, u, z), and how it travels: state_dict, pickling, new groups."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, ParamsT

from fcco.distributed import Ranks
from fcco.kernel.queries import Queries
from fcco.kernel.rows import rows_of
from fcco.kernel.storage import Place, zeros_at
from fcco.kernel.table import BlockTable
from fcco.methods import Method
from fcco.optim.arguments import check_initial
from fcco.optim.counters import Counters
from fcco.optim.memory import build_table, copy_state, fresh_state, match_state, wide
from fcco.optim.travel import pack_table, unpack_table
from fcco.problem import Objective
from fcco.updates import Update

__all__ = ["BlockOptimizer", "Params"]

Params = ParamsT | nn.Module
"""Parameters, parameter groups, or a module, which also brings its buffers."""


class BlockOptimizer(Optimizer):
    """An optimizer that remembers: everything lies in ``state``, where torch's tools carry it.

    The state of the first trainable parameter also holds the table and the counters, on behalf of
    the whole optimizer: a further top-level key of ``state_dict`` would be dropped by
    ``torch.distributed.checkpoint``.

    With several ranks each holds the rows of its own blocks, and everything else is alike.
    """

    parts = {
        "objective",
        "method",
        "update",
        "ranks",
        "_buffers",
        "_dtype",
        "_host",
        "_share",
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
        self._host = self._trainable()[0]
        self._dtype = wide(self._host.dtype)
        for p in self._all_params():
            self._dtype = torch.promote_types(self._dtype, p.dtype)
        if isinstance(initial, Tensor):
            self._dtype = wide(initial.dtype)
        host_state = self.state[self._host]
        host_state["progress"] = Counters.start()
        if method.inner is not None:
            table = build_table(
                rows_of(objective),
                method,
                share,
                dtype=self._dtype,
                zeros=zeros_at(table_on, self._host.device),
                gamma=defaults["gamma"],
                inner_dim=objective.inner_dim,
                initial=initial,
            )
            host_state["table"] = table.buffers
        self._view_state()

    def _view_state(self) -> None:
        """What is derived from the parts and the state, once; the state's dictionaries stay."""
        held = self.state[self._host]
        self._rows = rows_of(self.objective)
        self._remembered = tuple(self.update.init(torch.zeros(0)))
        self._counters = Counters(held["progress"])
        self.table: BlockTable | None = None
        """u of this rank's blocks, or None for a method that has none."""
        if "table" in held:
            self.table = BlockTable(held["table"], self._share, scaled=self._rows.scaled)

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
        for p in self.param_groups[-1]["params"]:
            if any(size > 1 and step == 0 for size, step in zip(p.shape, p.stride(), strict=True)):
                self.param_groups.pop()
                raise ValueError("a parameter is expanded: several of its entries are one number")
            if p.requires_grad:
                self.state[p].update(fresh_state(p, self.method, self.update))

    def state_dict(self) -> dict[str, Any]:
        """Everything; with several ranks the table is one DTensor of which each has its share."""
        state_dict = super().state_dict()
        table, state = self.table, state_dict["state"]
        if table is not None:
            held = next(key for key, entry in state.items() if "table" in entry)
            state[held] = {**state[held], "table": pack_table(table, self.ranks)}
        return state_dict

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore everything, bit for bit; a state of another method or size is an error.

        Values are copied, in the precision and to the place this optimizer keeps them in. With
        several ranks all of them must call it.
        """
        table, state = self.table, dict(state_dict["state"])
        for key, entry in state.items():
            if table is not None and "table" in entry:
                state[key] = {**entry, "table": unpack_table(entry["table"], table)}
        pairs, thawed = match_state(
            self.state,
            self._all_params(),
            {**state_dict, "state": state},
            lambda p: fresh_state(p, self.method, self.update),
        )
        own = self.state
        # torch would cast its copy to the parameters' precision and move it to their device.
        small = {
            key: {name: value for name, value in entry.items() if name != "table"}
            for key, entry in state.items()
        }
        super().load_state_dict({**state_dict, "state": small})
        self.state = own
        self.state.update(thawed)
        copy_state(pairs)
        if table is not None and "overlay_blocks" in table.buffers:
            table.sort_overlay()

    def __getstate__(self) -> dict[str, Any]:
        # torch keeps defaults, groups and state; hooks, and a scheduler's wrapper around step,
        # belong to the process.
        own = {name: part for name, part in self.__dict__.items() if name in self.parts}
        return super().__getstate__() | own

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_host" in state:  # unpickled; torch's load_state_dict calls it too
            self._view_state()
