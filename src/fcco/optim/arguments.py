"""Checks of the arguments of an optimizer, and the stack level for its warnings."""

import math
import sys
from numbers import Real
from typing import Any

from torch import Tensor

from fcco.methods import Beta, Gamma, Method
from fcco.problem import Objective, ScaledObjective
from fcco.problem.given import tensor, whole

__all__ = ["check_gain", "check_problem", "read_initial", "user_stacklevel"]

_OURS = ("fcco", "fcco_lab", "torch")  # torch wraps every optimizer's ``step``


def check_problem(objective: Objective, method: Method, snapshot_every: int | None) -> None:
    """Check the sizes of the objective; ``snapshot_every`` is for methods with snapshots only."""
    sizes = ["num_blocks", "inner_dim"]
    if isinstance(objective, ScaledObjective):
        sizes.append("inner_size")
    for name in sizes:
        number = getattr(objective, name, None)
        if not _is_count(number):
            raise ValueError(f"objective.{name} must be a positive int, got {number!r}")
    if isinstance(objective, ScaledObjective) and objective.scaled_dim is not None:
        dim, p = objective.scaled_dim, objective.inner_dim
        if not _is_count(dim) or dim > p:
            raise ValueError(f"objective.scaled_dim must be None or an int in 1..{p}, got {dim!r}")
    if snapshot_every is None:
        return
    if not method.anchored:
        raise ValueError(f"snapshot_every: {method.name} has no snapshots; version 3 has")
    if whole("snapshot_every", snapshot_every) < 1:
        raise ValueError(f"snapshot_every must be at least 1, got {snapshot_every}")


def check_gain(method: Method, beta: Beta, gamma: Gamma) -> None:
    """Raise a ``ValueError`` if the method cannot use a beta that is not a number."""
    if isinstance(beta, Real):
        return
    if method.inner is None:
        raise ValueError(f"beta={beta!r}: {method.name} has no table")
    # A chosen gain changes from step to step, while these methods tie other weights to beta.
    if method.anchored or method.shrinks:
        why = "fresh values are anchored" if method.anchored else "every row shrinks by 1 - beta"
        raise ValueError(f"beta={beta!r}: {method.name} needs a number, because {why}")
    # gamma="theory" divides by 1 - beta.
    if beta == "auto":
        if gamma == "theory" and method.corrected:
            raise ValueError(
                'beta="auto" may choose 1, where gamma="theory" is singular: use gamma="age"'
            )
    elif method.inner.points:
        raise ValueError(f'beta={beta!r}: {method.name} needs a number or "auto"')


def _is_count(number: object) -> bool:
    """Return whether it is an int of at least 1; a bool is an int in Python, but not a size."""
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


def read_initial(initial: Any, objective: Objective) -> Tensor | float | None:
    """Return None, a finite number or a finite (m, p) tensor; arrays become tensors."""
    if initial is None:
        return None
    if isinstance(initial, Real):
        if not math.isfinite(initial):
            raise ValueError(f"initial must be finite, got {initial}")
        return float(initial)
    rows = tensor("initial", initial)
    shape = (objective.num_blocks, objective.inner_dim)
    if rows.shape != shape or not rows.is_floating_point():
        raise ValueError(
            f"initial must be a floating-point tensor of shape {shape}, got "
            f"{rows.dtype} of shape {tuple(rows.shape)}"
        )
    if not rows.isfinite().all():
        raise ValueError("initial has non-finite entries")
    return rows


def user_stacklevel() -> int:
    """Return the ``stacklevel`` of the nearest caller outside fcco and torch.

    Examples:
        >>> user_stacklevel() > 0
        True
    """
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        frame, level = frame.f_back, level + 1
    return level
