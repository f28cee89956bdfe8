"""The state of an optimizer: per parameter, per block, and the position of the run."""

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
    "too_precise",
    "widen",
]

ANCHOR_STEP = "anchor_step"
"""Name of the step at which a parameter's anchor was taken, as ``Position.snapshot_step``."""

OWN_STATE = {"z", "anchor", ANCHOR_STEP, *(point.value for point in Point)}
"""Names in the state of a parameter that do not belong to the step rule."""


class Position(NamedTuple):
    """The position of a run, kept in tensors so that it is saved with the state.

    The tensors have no dimension, as torch's own ``step``. torch leaves such tensors on the CPU.

    Examples:
        >>> progress = Position.zeros()
        >>> Position(step=1, moved=True).write(progress)
        >>> Position.read(progress).step
        1
    """

    step: int = 0
    """Number of steps taken."""
    snapshot_step: int = 0
    """Step (from 1) at whose point the last snapshot was taken, or 0 if there is none yet."""
    moved: bool = False
    """Whether the previous point differs from the current one; false after a (re)start."""
    at_snapshot: bool = False
    """Whether the last snapshot was taken at the current point."""
    values: int = 0
    """Value queries so far, of all ranks."""
    gradients: int = 0
    """Gradient queries so far, of all ranks."""

    @classmethod
    def zeros(cls) -> dict[str, Tensor]:
        """Return the tensors of a new optimizer."""
        return {name: torch.zeros((), dtype=torch.int64, device="cpu") for name in cls._fields}

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


def too_precise(p: Tensor) -> ValueError:
    """Return the error about a parameter that the state of an optimizer would round."""
    return ValueError(
        f"a parameter is {p.dtype}, which the state of this optimizer would round: build the "
        "optimizer after converting the model"
    )


def fresh_state(p: Tensor, method: Method, update: Update) -> dict[str, Tensor]:
    """Return the first state of a parameter: z = 0, its points, and the step rule's state."""
    if p.is_complex():
        raise ValueError("a parameter is complex: train its real view (torch.view_as_real) instead")
    # A stride of 0 makes several entries one number, and an in-place update would add up.
    if any(n > 1 and not step for n, step in zip(p.shape, p.stride(), strict=True)):
        raise ValueError("a parameter is expanded: several of its entries are one number")
    # Small alpha adds tiny changes to z, which bfloat16 would round away.
    z = torch.zeros_like(p, dtype=widen(p.dtype), requires_grad=False)
    # At the start w_0 = w_1, so every older point is the current one.
    points = {point.value: p.detach().clone() for point in method.points}
    anchor = {}
    if method.anchored:
        # The step 0 means that the anchor belongs to no snapshot yet.
        step = torch.zeros((), dtype=torch.int64, device="cpu")
        anchor = {"anchor": torch.zeros_like(z), ANCHOR_STEP: step}
    return {"z": z} | points | anchor | update.init(z)


def empty_state(method: Method, update: Update) -> dict[str, dict[str, Tensor]]:
    """Return the state of a parameter that was never trained, which has names but no tensors.

    torch.distributed.checkpoint looks up the names of a live state, and it needs an entry for every
    trainable parameter. It uses an empty dictionary itself for a name that it does not find.

    Examples:
        >>> from fcco.methods import SOX
        >>> from fcco.updates import Adam
        >>> empty_state(SOX, Adam())
        {'z': {}, 'h': {}, 'h_weight': {}}
    """
    return {name: {} for name in fresh_state(torch.zeros(0), method, update)}


def is_known(state: Mapping[str, Any]) -> bool:
    """Return whether a state holds tensors and not only names.

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
    """Move a parameter's state to the given device."""
    for name in state.keys() - {ANCHOR_STEP}:  # the step stays on the CPU, which reads it
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

    ``initial`` counts as a visit at step 0. If it is None, every row is empty until its first
    visit.
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
        # Each rank stores the rows of its own blocks only.
        table.fill(rows.pack(initial.detach()[share.start : share.stop]), step=0)
    elif initial is not None:
        one = torch.full((1, rows.objective.inner_dim), initial, dtype=dtype)
        table.fill(rows.pack(one), step=0)
    return table
