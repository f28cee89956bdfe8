"""Who takes part in experiments: the registered methods, and what one would use instead."""

from dataclasses import dataclass

from fcco.methods import REGISTRY, Entry

__all__ = ["BASELINES", "ENTRIES", "Baseline"]


@dataclass(frozen=True)
class Baseline:
    """What one would use instead of a method: an ordinary loss with a torch optimizer.

    Args:
        name: what one types.
        label: in tables and legends.
        colours: on a light and on a dark page.
        coefficients: that tuning may vary.
    """

    name: str
    label: str
    colours: tuple[str, str]
    coefficients: tuple[str, ...] = ("lr",)


BASELINES: dict[str, Baseline] = {
    baseline.name: baseline
    for baseline in (
        Baseline("cross-entropy", "cross-entropy", ("#555555", "#a8adb5")),
        Baseline("min-max", "min-max", ("#96680f", "#d0a35a")),
    )
}

ENTRIES: dict[str, Baseline | Entry] = {**BASELINES, **REGISTRY}
"""All of them by name, in the order in which tables and legends show them."""
