"""A recipe, which is what a theorem prescribes: a method, a step rule and coefficients."""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from fcco.methods import Method
from fcco.methods.coefficients import Coefficients, Gamma
from fcco.updates import Update

__all__ = ["Recipe", "Stage"]


@dataclass(frozen=True)
class Stage:
    """Consecutive steps with one rule for their coefficients.

    Args:
        num_steps: the number of steps, T or T_s.
        coefficients: a function from the step t = 1 .. num_steps of this stage to its
            coefficients.
        exact: whether the stage begins with an exact pass.
    """

    num_steps: int
    coefficients: Callable[[int], Coefficients]
    exact: bool = False

    @classmethod
    def constant(
        cls,
        num_steps: float,
        *,
        lr: float,
        alpha: float,
        beta: float = 1.0,
        gamma: Gamma = 0.0,
        exact: bool = False,
    ) -> "Stage":
        """Return a stage of ceil(num_steps) steps whose coefficients do not change.

        alpha and beta are clamped to at most 1. With gamma = Gamma(beta), beta is clamped to 1/2,
        as the lemmas require.

        Examples:
            >>> Stage.constant(9.2, lr=0.1, alpha=3.0).coefficients(7).alpha
            1.0
        """
        # The lemmas behind gamma = Gamma(beta) assume beta <= 1/2.
        highest = 0.5 if gamma == "theory" else 1.0
        steady = Coefficients(lr=lr, alpha=min(1.0, alpha), beta=min(highest, beta), gamma=gamma)
        return cls(max(1, math.ceil(num_steps)), lambda t: steady, exact)


@dataclass(frozen=True)
class Recipe:
    """The data needed to run a theorem.

    Args:
        label: the paper's label.
        method: the method, see ``fcco.methods``.
        update: the step rule.
        stages: one stage for an ordinary theorem, several for a stage-wise one.
        snapshot_every: I, the number of steps between exact passes, for version 3.
        initial_samples: the number of inner samples for each row of u_1. If None, a row is filled
            at its first visit (in version 3, by the first snapshot).
        first_samples: the number of inner samples per block for z_1.
        weight_decay: mu of a convex problem F + (mu/2) ||w||^2. With a plain step, decoupled decay
            is the step along z + mu w.

    Examples:
        >>> from fcco.schedules import RECIPES
        >>> recipe = RECIPES["new:2"](m=100, B1=10, T=10_000)
        >>> recipe.method.name, round(recipe.coefficients(1).beta, 4)
        ('msvrm-v2', 0.01)
    """

    label: str
    method: Method
    update: Update
    stages: tuple[Stage, ...]
    snapshot_every: int | None = None
    initial_samples: int | None = None
    first_samples: int = 1
    weight_decay: float = 0.0

    @property
    def num_steps(self) -> int:
        """The number of steps of all stages."""
        return sum(stage.num_steps for stage in self.stages)

    @property
    def starts(self) -> tuple[int, ...]:
        """The first step of each stage, counted from 1."""
        ends = accumulate(stage.num_steps for stage in self.stages)
        return (1, *(end + 1 for end in ends))[:-1]

    def locate(self, t: int) -> tuple[int, int]:
        """Return the stage of step t, counted from 0, and the step within it, from 1."""
        if not 1 <= t <= self.num_steps:
            raise ValueError(f"step {t} lies outside 1..{self.num_steps} of {self.label}")
        stage = bisect_right(self.starts, t) - 1
        return stage, t - self.starts[stage] + 1

    def coefficients(self, t: int) -> Coefficients:
        """Return lr, alpha, beta and gamma of step t = 1 .. num_steps."""
        stage, step = self.locate(t)
        return self.stages[stage].coefficients(step)
