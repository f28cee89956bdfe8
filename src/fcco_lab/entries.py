"""The contenders of experiments: the registered methods, and the usual alternatives."""

from dataclasses import dataclass

from fcco.methods import REGISTRY, Entry

__all__ = ["BASELINES", "ENTRIES", "Baseline"]


@dataclass(frozen=True)
class Baseline:
    """A usual alternative to a method: an ordinary loss with a torch optimizer.

    Args:
        name: the name on the command line.
        label: the label in tables and legends.
        colours: the colours on a light and on a dark page.
        coefficients: the coefficients that tuning may vary.
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
"""All contenders by name, in the order of tables and legends."""
