"""Who owns the triple (w, u, z), and how it travels: state_dict, pickling, new groups."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from fcco.distributed import Ranks
from fcco.methods import Method
from fcco.problem.objective import Objective
from fcco.optim.hyper import check_initial
from fcco.optim.memory import (
    SHARED,
    build_table,
    copy_state,
    follow,
    fresh_state,
    match_state,
    wide,
)
from fcco.optim.progress import Progress
from fcco.optim.travel import pack_table, unpack_table
from fcco.methods.point import Point
from fcco.kernel.queries import Queries
from fcco.kernel.rows import rows_of
from fcco.distributed.sharded import local
from fcco.kernel.storage import Place, zeros_at
from fcco.kernel.table import BlockTable
from fcco.updates import Update

__all__ = ["BlockOptimizer"]


class BlockOptimizer(Optimizer):
    """An optimizer that remembers: everything lies in ``state``, where torch's tools carry it.

    The state of the first trainable parameter also holds the table and the counters, on behalf of
    the whole optimizer: a further top-level key of ``state_dict`` would be dropped by
    ``torch.distributed.checkpoint``.

    With several ranks each holds the rows of its own blocks, and all else of theirs is alike.
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
        params: ParamsT,
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
        self._buffers = list(buffers)
        self._table_on = table_on
        super().__init__(params, defaults)
        self._host = self._trainable()[0]
        self._dtype = wide(self._host.dtype)
        for p in self._all_params():
            self._dtype = torch.promote_types(self._dtype, p.dtype)
        if isinstance(initial, Tensor):
            self._dtype = initial.dtype
        host_state = self.state[self._host]
        host_state["progress"] = Progress.start()
        if method.inner is not None:
            table = build_table(
                objective,
                method,
                share,
                dtype=self._dtype,
                zeros=zeros_at(table_on, self._host.device),
                gamma=defaults["gamma"],
                initial=initial,
            )
            host_state["table"] = table.buffers

    @property
    def table(self) -> BlockTable | None:
        """u of this rank's blocks, or None for a method that has none."""
        buffers = self.state[self._host].get("table")
        if buffers is None:
            return None
        return BlockTable(buffers, self._share, scaled=rows_of(self.objective).scaled)

    @property
    def queries(self) -> Queries:
        """Oracle queries so far, of all ranks, counted exactly."""
        progress = self._progress
        return Queries(progress.values, progress.gradients)

    def _prepare(self) -> tuple[list[Tensor], list[dict[str, Any]]]:
        """The trainable parameters and their states; ``.grad`` is discarded.

        The state of a parameter that was frozen until now is new, and kept by ``_commit`` alone.
        """
        for p in self._all_params():
            p.grad = None
        params, states = self._trainable(), []
        for p in params:
            state = self.state.get(p, {})
            if "z" not in state:
                state = fresh_state(p, self.method, self.update) | state
            elif state["z"].device != p.device:
                follow(state, p.device)
            states.append(state)
        device = self._host.device
        if any(buffer.device != device for buffer in self._buffers):
            raise ValueError(
                f"buffers are not on {device}, where the parameters are: a module that moves gets "
                "new buffers, so build the optimizer after moving the model"
            )
        table = self.table
        if table is not None and table.device != device and self._table_on is None:
            table.to(device)
        return params, states

    def _commit(self, params: list[Tensor], states: list[dict[str, Any]], point: Point) -> None:
        """Keep the states, and remember where every parameter stands now as ``point``."""
        for p, state in zip(params, states, strict=True):
            self.state[p] = state
        there, here = [], []
        for p in self._all_params():  # the frozen ones too: they may thaw
            if p in self.state and point.value in self.state[p]:
                there.append(local(self.state[p][point.value]))
                here.append(local(p))
        if there:
            torch._foreach_copy_(there, here)
        if not self._host.requires_grad:
            # torch.distributed.checkpoint passes over the state of frozen parameters.
            old, self._host = self.state[self._host], params[0]
            self.state[self._host].update({name: old.pop(name) for name in SHARED if name in old})

    def _trainable(self) -> list[Tensor]:
        params = [p for p in self._all_params() if p.requires_grad]
        if not params:
            raise ValueError("no trainable parameter: every parameter has requires_grad=False")
        return params

    def _all_params(self) -> Iterator[Tensor]:
        return (p for group in self.param_groups for p in group["params"])

    @property
    def _progress(self) -> Progress:
        return Progress(self.state[self._host]["progress"])

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; its z starts at zero and its previous point where it stands."""
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
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
