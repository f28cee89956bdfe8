"""The linear branches of Theorems 4 and 6 as the paper prints them: experiments, not methods."""

import math
from dataclasses import replace

from fcco import methods
from fcco.schedules.formulas import alpha_in_range, ceil_root, check, constant
from fcco.schedules.recipe import Recipe
from fcco.updates import Normalized

__all__ = ["new_2_literal", "new_3_literal"]


def new_2_literal(*, m: int, B1: int, T: int) -> Recipe:
    """Theorem 4, affine slopes, as printed: beta = 1, gamma = 0. An experiment, not a method.

    The table then holds one old sample per block, and the proof bounds the difference of two
    different samples by O(eta^2): ||z - grad F|| does not fall with T. See ``new:2/linear``.
    """
    check(m=m, B1=B1, T=T)
    rate = B1 ** (1 / 3) * T ** (-2 / 3)
    stage = constant(T, lr=rate, alpha=alpha_in_range(rate))
    first = ceil_root(B1 * T)
    return Recipe("new:2/literal", methods.MSVRM_V2, Normalized(), (stage,), initial_samples=first)


def new_3_literal(*, m: int, B1: int, T: int, n: int) -> Recipe:
    """Theorem 6, affine slopes, as printed: u is the last sample. An experiment, not a method.

    See ``new:3/linear``.
    """
    check(m=m, B1=B1, T=T, n=n)
    stage = constant(
        T,
        lr=math.sqrt(B1 / T) * (m * n) ** (-1 / 4),
        alpha=alpha_in_range(B1 / (m * n)),
        exact=True,
    )
    method = replace(methods.MSVRM_V3, name="msvrm-v3-literal", inner=methods.SOX.inner)
    every = math.ceil(m * n / B1)
    return Recipe("new:3/literal", method, Normalized(), (stage,), snapshot_every=every)
