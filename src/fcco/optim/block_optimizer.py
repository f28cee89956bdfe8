"""Who owns the triple (w, u, z), and how it travels: state_dict, pickling, new groups."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from fcco.methods import Method
from fcco.objective import Objective
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
from fcco.point import Point
from fcco.queries import Queries
from fcco.rows import rows_of
from fcco.table import BlockTable
from fcco.updates import Update

__all__ = ["BlockOptimizer"]


class BlockOptimizer(Optimizer):
    """An optimizer that remembers: everything lies in ``state``, where torch's tools carry it.

    The state of the first trainable parameter also holds the table and the counters, on behalf of
    the whole optimizer: a further top-level key of ``state_dict`` would be dropped by
    ``torch.distributed.checkpoint``.
    """

    parts = {"objective", "method", "update", "_buffers", "_dtype", "_host"}
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
    ) -> None:
        check_initial(initial, objective)
        self.objective = objective
        self.method = method
        self.update = update
        self._buffers = list(buffers)
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
                dtype=self._dtype,
                device=self._host.device,
                gamma=defaults["gamma"],
                initial=initial,
            )
            host_state["table"] = table.buffers

    @property
    def table(self) -> BlockTable | None:
        """u, or None for a method that has none."""
        buffers = self.state[self._host].get("table")
        if buffers is None:
            return None
        return BlockTable(buffers, scaled=rows_of(self.objective).scaled)

    @property
    def queries(self) -> Queries:
        """Oracle queries so far, counted exactly."""
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
        if table is not None and table.device != device:
            table.to(device)
        return params, states

    def _commit(self, params: list[Tensor], states: list[dict[str, Any]], point: Point) -> None:
        """Keep the states, and remember where every parameter stands now as ``point``."""
        for p, state in zip(params, states, strict=True):
            self.state[p] = state
        for p in self._all_params():  # the frozen ones too: they may thaw
            if p in self.state and point.value in self.state[p]:
                self.state[p][point.value].copy_(p)
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

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore everything, bit for bit; a state of another method or size is an error.

        Values are copied, in the precision this optimizer keeps them in.
        """
        pairs, thawed = match_state(
            self.state,
            self._all_params(),
            state_dict,
            lambda p: fresh_state(p, self.method, self.update),
        )
        own = self.state
        super().load_state_dict(state_dict)
        self.state = own  # torch's copy is cast to the parameters' precision
        self.state.update(thawed)
        copy_state(pairs)

    def __getstate__(self) -> dict[str, Any]:
        # torch keeps defaults, groups and state; hooks, and a scheduler's wrapper around step,
        # belong to the process.
        own = {name: part for name, part in self.__dict__.items() if name in self.parts}
        return super().__getstate__() | own
