"""Reading the coefficients of a step from the parameter groups, and checking them."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fcco.methods.coefficients import Coefficients
from fcco.methods import Method
from fcco.problem.objective import Objective

__all__ = ["check_initial", "check_problem", "read_coefficients"]

_COMMON = ("alpha", "beta", "gamma")


def read_coefficients(groups: Sequence[dict[str, Any]], *, ages: bool) -> Coefficients:
    """The coefficients of the next step; groups may differ in lr and weight_decay alone.

    Args:
        groups: ``optimizer.param_groups``.
        ages: whether the optimizer keeps the ages that gamma="age" needs.
    """
    first = groups[0]
    for number, group in enumerate(groups):
        for name in _COMMON:
            if group[name] != first[name]:
                raise ValueError(
                    f"param group {number} has {name}={group[name]!r}, group 0 has "
                    f"{first[name]!r}: alpha, beta and gamma are common to all groups"
                )
        for name in ("lr", "weight_decay"):
            if not (group[name] >= 0 and math.isfinite(group[name])):
                raise ValueError(f"{name} must be finite and >= 0, got {group[name]}")
    alpha, beta, gamma = (first[name] for name in _COMMON)
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not 0 < value <= 1:
            raise ValueError(f"{name} must lie in (0, 1], got {value}")
    if isinstance(gamma, str):
        if gamma not in ("theory", "storm", "age"):
            raise ValueError(f'gamma must be "theory", "storm", "age" or a number, got {gamma!r}')
        if gamma == "age" and not ages:
            raise ValueError('gamma="age" needs an optimizer that was built with gamma="age"')
    elif not (gamma >= 0 and math.isfinite(gamma)):
        raise ValueError(f"gamma must be finite and >= 0, got {gamma}")
    return Coefficients(lr=first["lr"], alpha=alpha, beta=beta, gamma=gamma)


def check_problem(objective: Objective, method: Method, snapshot_every: int | None) -> None:
    """The objective has a size, and snapshots are asked of a method that has them."""
    for name in ("num_blocks", "inner_dim"):
        number = getattr(objective, name, None)
        if not isinstance(number, int) or number < 1:
            raise ValueError(f"objective.{name} must be a positive int, got {number!r}")
    if snapshot_every is None:
        return
    if not method.anchored:
        raise ValueError(f"snapshot_every: {method.name} has no snapshots; version 3 has")
    if snapshot_every < 1:
        raise ValueError(f"snapshot_every must be at least 1, got {snapshot_every}")


def check_initial(initial: Tensor | float | None, objective: Objective) -> None:
    """``initial`` is None, a finite number or a finite floating tensor of shape (m, p)."""
    if isinstance(initial, Tensor):
        shape = (objective.num_blocks, objective.inner_dim)
        if initial.shape != shape or not initial.is_floating_point():
            raise ValueError(
                f"initial must be a floating-point tensor of shape {shape}, got "
                f"{initial.dtype} of shape {tuple(initial.shape)}"
            )
        if not initial.isfinite().all():
            raise ValueError("initial has non-finite entries")
    elif initial is not None and not math.isfinite(initial):
        raise ValueError(f"initial must be finite, got {initial}")
