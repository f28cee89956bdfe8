"""What an optimizer remembers: of every parameter, of the blocks, and how far it is."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from fcco.distributed import Share
from fcco.kernel.rows import Rows
from fcco.kernel.storage import Zeros
from fcco.kernel.table import Table
from fcco.methods import Beta, Gamma, Method, Point
from fcco.updates import Update

__all__ = [
    "ANCHOR_STEP",
    "OWN_STATE",
    "Position",
    "build_table",
    "empty_state",
    "fresh_state",
    "has_anchor",
    "is_known",
    "move_state",
    "widen",
]

ANCHOR_STEP = "anchor_step"
"""The step at whose point a parameter's anchor was taken, as ``Position.snapshot_step``."""

OWN_STATE = {"z", "anchor", ANCHOR_STEP, *(point.value for point in Point)}
"""The names in the state of a parameter that are not the step rule's."""


class Position(NamedTuple):
    """How far a run is. It is kept in tensors, so that it travels with the state.

    They have no dimension, as torch's own ``step``: its tools leave such a tensor on the host.

    Examples:
        >>> progress = Position.zeros()
        >>> Position(step=1, moved=True).write(progress)
        >>> Position.read(progress).step
        1
    """

    step: int = 0
    """Steps taken."""
    snapshot_step: int = 0
    """The step (from 1) at whose point the last snapshot was taken; 0: none yet."""
    moved: bool = False
    """Whether the previous point is another one than the current: not at a (re)start."""
    at_snapshot: bool = False
    """Whether the snapshot was taken where the model stands."""
    values: int = 0
    """Value queries so far, of all ranks."""
    gradients: int = 0
    """Gradient queries so far, of all ranks."""

    @classmethod
    def zeros(cls) -> dict[str, Tensor]:
        """Return the tensors of a new optimizer."""
        return {name: torch.zeros((), dtype=torch.int64) for name in cls._fields}

    @classmethod
    def read(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Read the position from its tensors."""
        return cls(
            step=int(tensors["step"]),
            snapshot_step=int(tensors["snapshot_step"]),
            moved=bool(tensors["moved"]),
            at_snapshot=bool(tensors["at_snapshot"]),
            values=int(tensors["values"]),
            gradients=int(tensors["gradients"]),
        )

    def write(self, tensors: Mapping[str, Tensor]) -> None:
        """Write the position to its tensors."""
        for name, number in zip(self._fields, self, strict=True):
            tensors[name].fill_(number)


def widen(dtype: torch.dtype) -> torch.dtype:
    """Return the precision of the state of a parameter of ``dtype``: at least float32.

    Examples:
        >>> widen(torch.bfloat16), widen(torch.float64)
        (torch.float32, torch.float64)
    """
    return torch.promote_types(dtype, torch.float32)


def fresh_state(p: Tensor, method: Method, update: Update) -> dict[str, Tensor]:
    """Return z = 0, the points where p stands now, and what the step rule wants to remember."""
    z = torch.zeros_like(p, dtype=widen(p.dtype), requires_grad=False)
    points = {point.value: p.detach().clone() for point in method.points}
    anchor = {}
    if method.anchored:
        # The snapshot that the anchor belongs to: none yet.
        anchor = {"anchor": torch.zeros_like(z), ANCHOR_STEP: torch.zeros((), dtype=torch.int64)}
    return {"z": z} | points | anchor | update.init(z)


def empty_state(method: Method, update: Update) -> dict[str, dict[str, Tensor]]:
    """Return the state of a parameter that was never trained: only the names.

    torch.distributed.checkpoint looks for what a live state names, and asks for an entry of every
    trainable parameter. An empty dictionary is what it makes itself of a name it does not find.

    Examples:
        >>> from fcco.methods import SOX
        >>> from fcco.updates import Adam
        >>> empty_state(SOX, Adam())
        {'z': {}, 'h': {}, 'h_weight': {}}
    """
    return {name: {} for name in fresh_state(torch.zeros(0), method, update)}


def is_known(state: Mapping[str, Any]) -> bool:
    """Return whether there is anything behind the names.

    Examples:
        >>> is_known({"z": {}}), is_known({"z": torch.zeros(2)})
        (False, True)
    """
    return isinstance(state.get("z"), Tensor)


def has_anchor(state: Mapping[str, Any], snapshot_step: int) -> bool:
    """Return whether a parameter took part in the snapshot of that step."""
    step = state.get(ANCHOR_STEP)
    return isinstance(step, Tensor) and int(step) == snapshot_step


def move_state(state: dict[str, Any], device: torch.device) -> None:
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
    beta: Beta,
    initial: Tensor | float | None,
) -> Table:
    """Build the table that ``method`` needs for the blocks of ``share``, filled with ``initial``.

    ``initial`` counts as a visit at step 0; None: every row waits for its first visit.
    """
    table = Table(
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
        table.fill(rows.pack(initial[share.start : share.stop]), step=0)
    elif initial is not None:
        one = torch.full((1, rows.objective.inner_dim), initial, dtype=dtype)
        table.fill(rows.pack(one), step=0)
    return table
