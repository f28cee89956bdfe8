"""The usual alternatives to a method: an ordinary loss with a torch optimizer."""

from dataclasses import dataclass

__all__ = ["BASELINES", "Baseline"]


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
