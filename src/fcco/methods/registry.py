"""Every method by its name: the one place where names, costs, labels and colours stand.

The optimizers by name, the command line, tables, figures, tuning and the test catalogue read it. A
new method is one file, one reference loop (``tests/support/reference.py``) and one row here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fcco.methods.ablation import VARIANT_V1, VARIANT_V2, VARIANT_V3
from fcco.methods.alexr import ALEXR
from fcco.methods.bsgd import BSGD
from fcco.methods.fresh_pair import FRESH_PAIR_V1, FRESH_PAIR_V2, FRESH_PAIR_V3
from fcco.methods.gain import Beta
from fcco.methods.mars import MARS
from fcco.methods.method import Method, SlopeAt
from fcco.methods.msvrm import MSVRM_V1, MSVRM_V2, MSVRM_V3, SINGLE_POINT_V1, SINGLE_POINT_V2
from fcco.methods.sox import SOAP, SOX

__all__ = ["REGISTRY", "Entry", "find", "register"]


@dataclass(frozen=True)
class Entry:
    """A method, and what is said of it wherever it is chosen, counted, listed or drawn.

    Args:
        method: two rows of weights; its name is the name.
        label: as the paper writes it, in tables and legends.
        values: inner values that a sample costs in an ordinary step.
        gradients: inner gradients that a sample costs in an ordinary step.
        colours: on a light and on a dark page.
        fixed: coefficients that are part of the method.
        defaults: coefficients whose default is the method's own.

    Examples:
        >>> entry = REGISTRY["msvrm-v2"]
        >>> entry.label, entry.coefficients
        ('MSVRM-v2', ('lr', 'alpha', 'beta', 'gamma'))
    """

    method: Method
    label: str
    values: int
    gradients: int
    colours: tuple[str, str]
    fixed: Mapping[str, float] = field(default_factory=dict)
    defaults: Mapping[str, Beta] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What one types."""
        return self.method.name

    @property
    def coefficients(self) -> tuple[str, ...]:
        """The coefficients that the method has, apart from those that are fixed."""
        inner = self.method.inner
        has = {
            "lr": True,
            "alpha": True,
            "beta": inner is not None,
            "gamma": self.method.corrected,
        }
        return tuple(name for name, there in has.items() if there and name not in self.fixed)

    @property
    def needs_pair(self) -> bool:
        """Whether a closure must report ``Probe.pair``, values of an independent sample."""
        return self.method.slope_at is SlopeAt.PAIR

    def arguments(self, **settings: Any) -> dict[str, Any]:
        """Of ``settings`` those that the method has a use for, and what is fixed.

        Examples:
            >>> REGISTRY["soap"].arguments(lr=0.1, alpha=0.5, beta=0.5, gamma="age")
            {'beta': 0.5, 'lr': 0.1, 'alpha': 1.0}
        """
        useless = {"lr", "alpha", "beta", "gamma"} - set(self.coefficients)
        if not self.method.anchored:
            useless.add("snapshot_every")
        if self.method.inner is None:
            useless |= {"initial", "table_on"}
        if not self.method.gradient.points:
            useless.add("safeguard")
        useful = {name: value for name, value in settings.items() if name not in useless}
        return {**self.defaults, **useful, **self.fixed}


# Hues after Okabe and Ito, which the colour-blind can tell apart.
REGISTRY: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(SOX, "SOX", 1, 1, ("#d55e00", "#ff8a3d"), defaults={"beta": "auto"}),
        Entry(
            SOAP,
            "SOAP",
            1,
            1,
            ("#0b7f8a", "#5fd6e0"),
            fixed={"alpha": 1.0},
            defaults={"beta": "auto"},
        ),
        Entry(BSGD, "BSGD", 1, 1, ("#111827", "#f3f4f6"), defaults={"alpha": 1.0}),
        Entry(MSVRM_V1, "MSVRM-v1", 2, 1, ("#0072b2", "#4ba3e3")),
        Entry(MSVRM_V2, "MSVRM-v2", 2, 2, ("#008a64", "#1fb88a")),
        Entry(MSVRM_V3, "MSVRM-v3", 3, 3, ("#aa3e98", "#e58bd3")),
        Entry(SINGLE_POINT_V1, "MSVRM-v1-sp", 2, 1, ("#5b3fa8", "#a893f5")),
        Entry(SINGLE_POINT_V2, "MSVRM-v2-sp", 3, 2, ("#7b3f00", "#c79a6b")),
        Entry(VARIANT_V1, "Variant-v1", 2, 1, ("#2a8fcc", "#9fd8ff")),
        Entry(VARIANT_V2, "Variant-v2", 2, 2, ("#b87d00", "#f0b53a")),
        Entry(VARIANT_V3, "Variant-v3", 3, 3, ("#7b8a00", "#c5d04a")),
        Entry(FRESH_PAIR_V1, "fresh pair v1", 2, 1, ("#4d7c0f", "#a3d65c")),
        Entry(FRESH_PAIR_V2, "fresh pair v2", 4, 2, ("#be185d", "#f48fb1")),
        Entry(FRESH_PAIR_V3, "fresh pair v3", 6, 3, ("#475569", "#b6c2d1")),
        Entry(ALEXR, "ALEXR", 2, 1, ("#9a3412", "#fdba74")),
        Entry(MARS, "MARS", 2, 2, ("#1d4ed8", "#93b4ff")),
    )
}
"""Methods by name, in the order in which tables and legends show them."""


def register(entry: Entry) -> None:
    """Add a method of one's own; a name that is taken is an error.

    Examples:
        >>> register(REGISTRY["sox"])
        Traceback (most recent call last):
        ValueError: a method named 'sox' is registered already
    """
    if entry.name in REGISTRY:
        raise ValueError(f"a method named {entry.name!r} is registered already")
    REGISTRY[entry.name] = entry


def find(name: str) -> Entry:
    """The entry of a name; an unknown name is an error that lists the known ones.

    Examples:
        >>> find("sxo")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: no method is named 'sxo': there are sox, soap, bsgd, ...
    """
    if name not in REGISTRY:
        raise ValueError(f"no method is named {name!r}: there are {', '.join(REGISTRY)}")
    return REGISTRY[name]
