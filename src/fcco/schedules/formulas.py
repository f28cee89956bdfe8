"""Parts of the recipes: bounds on coefficients, constant stages, halving targets."""

import math
from collections.abc import Iterator

from fcco.methods.coefficients import Coefficients, Gamma
from fcco.schedules.recipe import Stage

__all__ = ["alpha_in_range", "beta_in_range", "ceil_root", "check", "constant", "halvings"]


def check(**sizes: float | None) -> None:
    """Raise a ``ValueError`` that names a size that no theorem covers.

    Examples:
        >>> check(m=10, B1=11)
        Traceback (most recent call last):
        ValueError: B1 must lie in 1..m=10, got 11
    """
    for name, value in sizes.items():
        if value is None:
            raise ValueError(f"{name} is needed")
        if not value > 0 or not math.isfinite(value):
            raise ValueError(f"{name} must be positive, got {value}")
        if name in ("m", "B1", "T", "n") and value != int(value):
            raise ValueError(f"{name} must be a whole number, got {value}")
    m, blocks = sizes.get("m"), sizes.get("B1")
    if m is not None and blocks is not None and blocks > m:
        raise ValueError(f"B1 must lie in 1..m={m}, got {blocks}")


def beta_in_range(beta: float) -> float:
    """beta <= 1/2, which the lemmas for gamma = Gamma(beta) need.

    Examples:
        >>> beta_in_range(0.8)
        0.5
    """
    return min(0.5, beta)


def alpha_in_range(alpha: float) -> float:
    """alpha <= 1.

    Examples:
        >>> alpha_in_range(3.0)
        1.0
    """
    return min(1.0, alpha)


def ceil_root(number: float) -> int:
    """The ceiling of the cube root, exact for cubes despite rounding.

    Examples:
        >>> ceil_root(1000), ceil_root(1001)
        (10, 11)
    """
    return math.ceil(math.cbrt(number) - 1e-9)


def constant(
    num_steps: float,
    *,
    lr: float,
    alpha: float,
    beta: float = 1.0,
    gamma: Gamma = 0.0,
    exact: bool = False,
) -> Stage:
    """A stage whose coefficients do not change.

    Examples:
        >>> constant(10, lr=0.1, alpha=0.5).coefficients(7).alpha
        0.5
    """
    coefficients = Coefficients(lr=lr, alpha=alpha, beta=beta, gamma=gamma)
    return Stage(max(1, math.ceil(num_steps)), lambda t: coefficients, exact=exact)


def halvings(start: float, target: float) -> Iterator[float]:
    """epsilon_1 = start/2, epsilon_2 = start/4, ... down to the first at or below ``target``.

    Examples:
        >>> list(halvings(1.0, 0.2))
        [0.5, 0.25, 0.125]
    """
    epsilon = start
    while epsilon > target:
        epsilon /= 2
        yield epsilon
