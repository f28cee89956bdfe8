"""Every optimizer by name, with the equations that define it, for the test suites."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fcco.methods import REGISTRY
from fcco.optim import CompositionalOptimizer, by_name
from fcco.optim.optimizer import Params
from fcco.problem import Objective
from fcco.updates import Adam, AMSGrad, Normalized, Plain, Projected, Update
from support.reference import EQUATIONS, Rule, Settings


@dataclass(frozen=True)
class Entry:
    """A registered method, the options it is built with, and the equations that define it.

    ``extra`` marks entries that differ from another one only in beta, gamma or slopes.
    """

    name: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    extra: bool = False

    @property
    def equations(self) -> dict[str, Any]:
        """The settings of the reference."""
        if self.method not in EQUATIONS:
            raise ValueError(f"{self.method} has no equations: add them to reference.EQUATIONS")
        slope = "updated" if self.options.get("updated_slopes") else None
        slope = "common" if self.options.get("one_slope") else slope
        named = {key: self.options[key] for key in ("beta", "gamma") if key in self.options}
        return EQUATIONS[self.method] | named | ({"slope": slope} if slope else {})

    @property
    def affine(self) -> bool:
        """Whether the method is meant for affine slopes."""
        return REGISTRY[self.method].method.needs_pair

    @property
    def anchored(self) -> bool:
        """Whether it takes snapshots."""
        return REGISTRY[self.method].method.anchored

    @property
    def has_table(self) -> bool:
        """Whether it tracks u."""
        return REGISTRY[self.method].method.inner is not None

    @property
    def values(self) -> int:
        """Inner values per sample in an ordinary step."""
        return REGISTRY[self.method].method.value_cost

    @property
    def gradients(self) -> int:
        """Inner gradients per sample in an ordinary step."""
        return REGISTRY[self.method].method.gradient_cost

    @property
    def points(self) -> int:
        """Points that an ordinary step evaluates: the calls of its closure."""
        # A tangent is counted as a value, but it is not a point.
        tangent = int(REGISTRY[self.method].method.single_point)
        return self.values // (2 if self.affine else 1) - tangent

    def build(
        self,
        params: Params,
        objective: Objective,
        *,
        lr: float = 0.1,
        alpha: float = 0.5,
        beta: float = 0.5,
        **further: Any,
    ) -> CompositionalOptimizer:
        """The optimizer; arguments that the method does not have are left out."""
        settings = {"lr": lr, "alpha": alpha, "beta": beta} | further | self.options
        return by_name(self.method, params, objective, **settings)

    def settings(self, **values: Any) -> Settings:
        """The same, for the reference."""
        if not self.has_table:
            values.pop("initial", None)
        return Settings(**(values | self.equations))


def _entries() -> Iterator[Entry]:
    corrected = {"msvrm-v1-sp": "age", "msvrm-v2-sp": "theory"}
    for name, registered in REGISTRY.items():
        if name in corrected:
            yield Entry(name, name, {"gamma": corrected[name]})
        elif registered.method.corrected:
            yield Entry(f"{name}-theory", name, {"gamma": "theory"})
            yield Entry(f"{name}-storm", name, {"gamma": "storm"}, extra=name == "msvrm-v3")
            yield Entry(f"{name}-age", name, {"gamma": "age"}, extra=True)
        else:
            yield Entry(name, name)
    yield Entry("msvrm-v2-0.7", "msvrm-v2", {"gamma": 0.7}, extra=True)
    for name in ("sox", "soap", "mars"):
        yield Entry(f"{name}-updated", name, {"updated_slopes": True}, extra=True)
    for name in ("msvrm-v1", "msvrm-v2"):
        options = {"gamma": "age", "updated_slopes": True}
        yield Entry(f"{name}-updated", name, options, extra=True)
    options = {"gamma": "age", "one_slope": True}
    yield Entry("msvrm-v2-one-slope", "msvrm-v2", options, extra=True)
    yield Entry("sox-auto", "sox", {"beta": "auto", "updated_slopes": True})
    yield Entry("soap-auto", "soap", {"beta": "auto"}, extra=True)
    yield Entry("msvrm-v1-auto", "msvrm-v1", {"beta": "auto", "gamma": "age"}, extra=True)
    options = {"beta": "auto", "gamma": "storm", "updated_slopes": True}
    yield Entry("msvrm-v2-auto", "msvrm-v2", options, extra=True)
    yield Entry("msvrm-v1-sp-auto", "msvrm-v1-sp", {"beta": "auto", "gamma": 0.7}, extra=True)
    for rule, number in (("scent", -0.5), ("restart", 0.3), ("log", 0.3)):
        options = {"beta": (rule, number), "updated_slopes": True}
        yield Entry(f"sox-{rule}", "sox", options, extra=True)


CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _entries()}
"""Optimizers by name."""

RULES: dict[str, Rule] = {
    "plain": Rule("plain"),
    "normalized": Rule("normalized"),
    "projected": Rule("projected", radius=0.3),
    "adam": Rule("adam", weight_decay=0.1),
    "adam-paper": Rule("adam", radius=0.3, bias_correction=False),
    "amsgrad": Rule("amsgrad", radius=0.3),
}
"""Step rules by name."""


def make_update(rule: Rule) -> Update:
    """The update that the reference's ``rule`` describes."""
    if rule.name == "normalized":
        return Normalized()
    if rule.name == "projected" and rule.radius is not None:
        return Projected(rule.radius)
    if rule.name in ("adam", "amsgrad"):
        kind = Adam if rule.name == "adam" else AMSGrad
        return kind(rule.beta2, rule.eps, rule.radius, rule.bias_correction)
    return Plain()


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """All entries in one vector."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors])
