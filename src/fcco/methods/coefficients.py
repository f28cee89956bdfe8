"""The coefficients of a step, and the correction gamma, which may depend on the blocks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from fcco.methods.gain import Gain, read_gain
from fcco.methods.weights import Scalar

__all__ = ["Coefficients", "Gamma", "gamma_age", "gamma_storm", "gamma_theory"]

Gamma = float | str
"""Strength of the error correction: "theory", "storm", "age" or a number."""

_COMMON = ("alpha", "beta", "gamma")

_NUMBER: Any = float | int | Real
"""Numbers of Python, which are recognized at once, and others such as NumPy's."""

_LARGEST = torch.finfo(torch.float32).max
"""Largest number that torch accepts as the weight of a float32 tensor. A larger one would raise
in the middle of a step."""


@dataclass(frozen=True, kw_only=True)
class Coefficients(Gain):
    """The coefficients of one step: lr (eta), alpha, beta with its rule, and gamma.

    Examples:
        >>> Coefficients(lr=0.1, alpha=0.5, beta=0.25, gamma="storm").alpha
        0.5
    """

    lr: float
    alpha: float
    gamma: Gamma = 0.0

    @classmethod
    def from_groups(
        cls, groups: Sequence[Mapping[str, Any]], memory: Tensor | None = None
    ) -> "Coefficients":
        """Read the coefficients of the next step; only lr and weight_decay may differ by group.

        Args:
            groups: the parameter groups of an optimizer. A scheduler or a user may have changed
                their numbers, so they are checked in every step.
            memory: the numbers from which beta = "auto" is chosen, or None.
        """
        first = groups[0]
        alpha, gamma = first["alpha"], first["gamma"]
        if not isinstance(alpha, _NUMBER) or not 0 < alpha <= 1:
            raise ValueError(f"alpha must be a number in (0, 1], got {alpha!r}")
        gain = read_gain(first["beta"], memory)
        if isinstance(gamma, str):
            if gamma not in ("theory", "storm", "age"):
                raise ValueError(
                    f'gamma must be "theory", "storm", "age" or a number, got {gamma!r}'
                )
        elif not isinstance(gamma, _NUMBER) or not 0 <= gamma <= _LARGEST:
            raise ValueError(f"gamma must be a finite number >= 0, got {gamma!r}")
        for number, group in enumerate(groups):
            for name in ("lr", "weight_decay"):
                if not isinstance(group[name], _NUMBER) or not 0 <= group[name] <= _LARGEST:
                    raise ValueError(
                        f"{name} must be a finite number >= 0, got {group[name]!r}"
                        + (f" in param group {number}" if number else "")
                    )
            for name in _COMMON:
                if group[name] != first[name]:
                    raise ValueError(
                        f"param group {number} has {name}={group[name]!r}, group 0 has "
                        f"{first[name]!r}: alpha, beta and gamma are common to all groups"
                    )
        return cls(
            lr=float(first["lr"]),
            alpha=float(alpha),
            gamma=gamma if isinstance(gamma, str) else float(gamma),
            beta=gain.beta,
            rule=gain.rule,
            auto=gain.auto,
            learns=gain.learns,
        )

    @property
    def corrects(self) -> bool:
        """Whether gamma can differ from 0 for some blocks."""
        return self.gamma != 0 and (self.beta < 1 or self.gamma not in ("storm", "age"))

    def check_gamma(self, num_blocks: int, blocks_per_step: int) -> None:
        """Raise a ``ValueError`` if gamma="theory" is singular, even if it has no effect yet."""
        gamma_theory(self.beta, num_blocks, blocks_per_step)

    def gamma_of(
        self,
        age: Tensor | None,
        num_blocks: int,
        blocks_per_step: int,
        dtype: torch.dtype = torch.float64,
    ) -> Scalar:
        """Return gamma as a number, or as one number per probed row.

        Args:
            age: (k, 1), the steps since each row's last visit; only gamma="age" needs it.
            num_blocks: m, the number of blocks.
            blocks_per_step: B1, the number of probed blocks.
            dtype: the precision of the rows.

        Examples:
            >>> Coefficients(lr=0.1, alpha=0.5, beta=0.25, gamma="storm").gamma_of(None, 10, 2)
            0.75
        """
        # At beta = 1 nothing of the old row is kept, so there is nothing to correct.
        if self.gamma == "age" and age is not None and self.beta < 1:
            return gamma_age(self.alpha, self.beta, age).to(dtype)
        if self.gamma == "theory":
            return gamma_theory(self.beta, num_blocks, blocks_per_step)
        return gamma_storm(self.beta) if isinstance(self.gamma, str) else self.gamma


def gamma_theory(beta: float, num_blocks: int, blocks_per_step: int) -> float:
    """Return Gamma(beta) = (m - B1) / (B1 (1 - beta)) + (1 - beta), Lemma 2 (``lem:main1``).

    With B1 = m the first term vanishes. Only in that case beta = 1 is allowed.

    Examples:
        >>> gamma_theory(0.5, num_blocks=10, blocks_per_step=5)
        2.5
    """
    if blocks_per_step == num_blocks:
        return 1 - beta
    if beta >= 1:
        raise ValueError(
            f'gamma="theory" is singular at beta=1 when only {blocks_per_step} of {num_blocks} '
            "blocks are probed: lower beta, or set gamma=0"
        )
    return (num_blocks - blocks_per_step) / (blocks_per_step * (1 - beta)) + (1 - beta)


def gamma_storm(beta: float) -> float:
    """Return STORM's correction for one block, 1 - beta.

    Examples:
        >>> gamma_storm(0.25)
        0.75
    """
    return 1 - beta


def gamma_age(alpha: float, beta: float, age: Tensor) -> Tensor:
    """Return (1 - beta) (1 - (1 - alpha)^k) / alpha for a row last visited k steps ago.

    For alpha -> 0 this is (1 - beta) k, the drift of a straight path over k steps. For alpha = 1 it
    is STORM's 1 - beta.

    Examples:
        >>> gamma_age(0.5, 0.0, torch.tensor([1, 2])).tolist()
        [1.0, 1.5]
    """
    # (1 - alpha)^k - 1 by log1p and expm1 in float64: for a tiny alpha, the power would round to 1.
    decay = -math.inf if alpha >= 1 else math.log1p(-alpha)
    return torch.expm1(age.double() * decay).mul_((beta - 1) / alpha)
