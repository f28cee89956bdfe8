"""Who takes part in a comparison: an optimizer by method and step rule, or cross-entropy."""

from dataclasses import dataclass

from torch import nn

from fcco.objective import Objective
from fcco.optim import MSVRM, SOX, CompositionalOptimizer
from fcco.updates import Adam, Normalized, Plain, Update

__all__ = ["METHODS", "RULES", "Contender"]

METHODS = ("sox", "msvrm-v1", "msvrm-v2", "msvrm-v3")
"""Methods by their name on the command line."""

RULES: dict[str, type[Update]] = {"plain": Plain, "normalized": Normalized, "adam": Adam}
"""Step rules by name."""


@dataclass(frozen=True)
class Contender:
    """A method with its step rule and coefficients.

    Examples:
        >>> Contender("msvrm-v2", "normalized", lr=0.1, alpha=0.5, beta=0.5).name
        'msvrm-v2 normalized'
    """

    method: str
    rule: str
    lr: float
    alpha: float
    beta: float
    snapshot_every: int | None = None

    @property
    def name(self) -> str:
        """How it is shown."""
        return self.method if self.rule == "plain" else f"{self.method} {self.rule}"

    def build(self, model: nn.Module, objective: Objective) -> CompositionalOptimizer:
        """The optimizer, on ``model``'s parameters."""
        update = RULES[self.rule]()
        if self.method == "sox":
            return SOX(
                model.parameters(),
                objective,
                lr=self.lr,
                alpha=self.alpha,
                beta=self.beta,
                update=update,
                buffers=model.buffers(),
            )
        return MSVRM(
            model.parameters(),
            objective,
            version=int(self.method[-1]),
            lr=self.lr,
            alpha=self.alpha,
            beta=self.beta,
            update=update,
            snapshot_every=self.snapshot_every,
            buffers=model.buffers(),
        )
