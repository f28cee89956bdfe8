"""The list of all methods by name, which optimizers, the command line and tests read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fcco.methods import definitions
from fcco.methods.gain import Beta
from fcco.methods.method import Method

__all__ = ["REGISTRY", "Entry", "find", "register"]

_COEFFICIENTS = ("lr", "alpha", "beta", "gamma")


@dataclass(frozen=True)
class Entry:
    """A method and its coefficients.

    Args:
        method: the method, whose name is also the name of the entry.
        fixed: coefficients that are part of the method and cannot be changed.
        defaults: coefficients whose default differs from that of other methods.

    Examples:
        >>> REGISTRY["msvrm-v2"].coefficients
        ('lr', 'alpha', 'beta', 'gamma')
    """

    method: Method
    fixed: Mapping[str, float] = field(default_factory=dict)
    defaults: Mapping[str, Beta] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name on the command line and in ``REGISTRY``."""
        return self.method.name

    @property
    def coefficients(self) -> tuple[str, ...]:
        """The coefficients that the method has, except for the fixed ones."""
        absent = set(self.fixed)
        if self.method.inner is None:
            absent.add("beta")
        if not self.method.corrected:
            absent.add("gamma")
        return tuple(name for name in _COEFFICIENTS if name not in absent)

    def arguments(self, **settings: Any) -> dict[str, Any]:
        """Return those of ``settings`` that the method uses, with its defaults and fixed ones.

        Examples:
            >>> REGISTRY["soap"].arguments(lr=0.1, alpha=0.5, beta=0.5, gamma="age")
            {'beta': 0.5, 'lr': 0.1, 'alpha': 1.0}
        """
        useless = set(_COEFFICIENTS) - set(self.coefficients)
        if not self.method.anchored:
            useless.add("snapshot_every")
        if self.method.inner is None:
            useless |= {"initial", "table_on"}
        # The safeguard bounds the change since an older point, so it needs one.
        if not self.method.gradient.points:
            useless.add("safeguard")
        useful = {name: value for name, value in settings.items() if name not in useless}
        return {**self.defaults, **useful, **self.fixed}


REGISTRY: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(definitions.SOX, defaults={"beta": "auto"}),
        Entry(definitions.SOAP, fixed={"alpha": 1.0}, defaults={"beta": "auto"}),
        Entry(definitions.BSGD, defaults={"alpha": 1.0}),
        Entry(definitions.MSVRM_V1),
        Entry(definitions.MSVRM_V2),
        Entry(definitions.MSVRM_V3),
        Entry(definitions.SINGLE_POINT_V1),
        Entry(definitions.SINGLE_POINT_V2),
        Entry(definitions.SVRG, fixed={"beta": 1.0}, defaults={"alpha": 1.0}),
        Entry(definitions.VARIANT_V1),
        Entry(definitions.VARIANT_V2),
        Entry(definitions.VARIANT_V3),
        Entry(definitions.FRESH_PAIR_V1),
        Entry(definitions.FRESH_PAIR_V2),
        Entry(definitions.FRESH_PAIR_V3),
        Entry(definitions.ALEXR),
        Entry(definitions.MARS),
    )
}
"""Methods by name, in the order in which tables and legends show them."""


def register(entry: Entry) -> None:
    """Add a method of your own; a name that exists already is an error.

    Examples:
        >>> register(REGISTRY["sox"])
        Traceback (most recent call last):
        ValueError: a method named 'sox' is registered already
    """
    if entry.name in REGISTRY:
        raise ValueError(f"a method named {entry.name!r} is registered already")
    REGISTRY[entry.name] = entry


def find(name: str) -> Entry:
    """Return the entry of a name, or raise a ``ValueError`` that lists the known names.

    Examples:
        >>> find("sxo")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: no method is named 'sxo': there are sox, soap, bsgd, ...
    """
    if name not in REGISTRY:
        raise ValueError(f"no method is named {name!r}: there are {', '.join(REGISTRY)}")
    return REGISTRY[name]
