"""Every optimizer by name, with the equations that define it: what the test suites run over."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fcco.optim import BSGD, MSVRM, SOAP, SOX, CompositionalOptimizer, FreshPair, Variant
from fcco.testing.reference import Rule, Settings
from fcco.testing.toy import Toy
from fcco.updates import Adam, AMSGrad, Normalized, Plain, Projected, Update

__all__ = ["CATALOGUE", "RULES", "Entry", "flat", "make_update"]


@dataclass(frozen=True)
class Entry:
    """An optimizer class, the arguments that choose its method, and its equations."""

    name: str
    cls: type[CompositionalOptimizer]
    choice: dict[str, Any] = field(default_factory=dict)
    equations: dict[str, Any] = field(default_factory=dict)
    values: int = 1
    gradients: int = 1
    extra: bool = False

    @property
    def affine(self) -> bool:
        """Whether the method is meant for affine slopes."""
        return self.cls is FreshPair

    @property
    def anchored(self) -> bool:
        """Whether it takes snapshots."""
        return bool(self.equations["z"] == "eqn:z+")

    @property
    def has_table(self) -> bool:
        """Whether it tracks u."""
        return self.equations["u"] is not None

    @property
    def points(self) -> int:
        """Points that an ordinary step evaluates: the calls of its closure."""
        tangent = int(self.equations["u"] == "MSVR-SP")  # counted as a value, but not a point
        return self.values // (2 if self.affine else 1) - tangent

    def build(
        self,
        params: Iterable[Any],
        objective: Toy,
        *,
        lr: float = 0.1,
        alpha: float = 0.5,
        beta: float = 0.5,
        snapshot_every: int | None = None,
        initial: Tensor | float | None = None,
        **common: Any,
    ) -> CompositionalOptimizer:
        """The optimizer; an argument that the method has no use for is left out."""
        arguments = dict(self.choice, lr=lr, **common)
        arguments.setdefault("alpha", alpha)
        if self.cls is SOAP:
            del arguments["alpha"]
        if self.has_table:
            arguments.update(beta=beta, initial=initial)
        if self.anchored:
            arguments["snapshot_every"] = snapshot_every
        make: Callable[..., CompositionalOptimizer] = self.cls
        return make(params, objective, **arguments)

    def settings(self, **values: Any) -> Settings:
        """The same, for the reference."""
        if not self.has_table:
            values.pop("initial", None)
        return Settings(**(values | self.equations))


def _msvrm(version: int, gamma: float | str, extra: bool = False) -> Entry:
    u = "MSVR_SVRG" if version == 3 else "MSVR"
    z = {1: "momentum", 2: "eqn:z", 3: "eqn:z+"}[version]
    return Entry(
        f"msvrm-v{version}-{gamma}",
        MSVRM,
        {"version": version, "gamma": gamma},
        {"u": u, "z": z, "gamma": gamma},
        values={1: 2, 2: 2, 3: 3}[version],
        gradients=version,
        extra=extra,
    )


CATALOGUE: dict[str, Entry] = {
    entry.name: entry
    for entry in [
        Entry("sox", SOX, {}, {"u": "SOXE", "z": "momentum"}),
        Entry("soap", SOAP, {}, {"u": "SOXE", "z": "momentum", "alpha": 1.0}),
        Entry(
            "sox-updated",
            SOX,
            {"updated_slopes": True},
            {"u": "SOXE", "z": "momentum", "slope": "updated"},
            extra=True,
        ),
        *(
            Entry(
                f"msvrm-v{version}-updated",
                MSVRM,
                {"version": version, "updated_slopes": True},
                {"u": "MSVR", "z": z, "gamma": "age", "slope": "updated"},
                values=2,
                gradients=version,
                extra=True,
            )
            for version, z in ((1, "momentum"), (2, "eqn:z"))
        ),
        Entry("bsgd", BSGD, {}, {"u": None, "z": "momentum", "slope": "value"}),
        _msvrm(1, "storm"),
        _msvrm(2, "storm"),
        *(_msvrm(version, "theory") for version in (1, 2, 3)),
        *(_msvrm(version, "age", extra=True) for version in (1, 2, 3)),
        _msvrm(3, "storm", extra=True),
        _msvrm(2, 0.7, extra=True),
        Entry(
            "single-point-v1",
            MSVRM,
            {"version": 1, "single_point": True},
            {"u": "MSVR-SP", "z": "momentum", "gamma": "age"},
            values=2,
        ),
        Entry(
            "single-point-v2",
            MSVRM,
            {"version": 2, "single_point": True, "gamma": "theory"},
            {"u": "MSVR-SP", "z": "eqn:z", "gamma": "theory"},
            values=3,
            gradients=2,
        ),
        *(
            Entry(
                f"fresh-pair-v{version}",
                FreshPair,
                {"version": version},
                {"u": None, "z": z, "slope": "pair"},
                values=2 * version,  # both samples of a pair are evaluated
                gradients=version,
            )
            for version, z in ((1, "momentum"), (2, "eqn:z"), (3, "eqn:z+"))
        ),
        *(
            Entry(
                f"variant-v{version}",
                Variant,
                {"version": version},
                {"u": "variant-svrg" if version == 3 else "variant", "z": z},
                values={1: 2, 2: 2, 3: 3}[version],
                gradients=version,
            )
            for version, z in ((1, "momentum"), (2, "eqn:z"), (3, "eqn:z+"))
        ),
    ]
}
"""Optimizers by name; ``values`` and ``gradients`` are what a sample costs them in a later step,
``extra`` marks those that differ from another entry in gamma alone."""

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
    """The update that the reference's ``rule`` describes.

    Examples:
        >>> type(make_update(RULES["normalized"])).__name__
        'Normalized'
    """
    if rule.name == "normalized":
        return Normalized()
    if rule.name == "projected" and rule.radius is not None:
        return Projected(rule.radius)
    if rule.name in ("adam", "amsgrad"):
        kind = Adam if rule.name == "adam" else AMSGrad
        return kind(rule.beta2, rule.eps, rule.radius, rule.bias_correction)
    return Plain()


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """All entries in one vector.

    Examples:
        >>> flat([torch.zeros(2), torch.ones(1, 1)])
        tensor([0., 0., 1.])
    """
    return torch.cat([tensor.detach().flatten() for tensor in tensors])
