"""The settings that are tried: one default, and a few of a Sobol sequence, the same for all."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch.quasirandom import SobolEngine

__all__ = ["Choice", "Log", "Range", "Uniform", "settings_to_try"]


@dataclass(frozen=True)
class Log:
    """Numbers between two bounds, uniform in their logarithm.

    Examples:
        >>> Log(0.01, 1.0).at(0.5)
        0.1
    """

    low: float
    high: float

    def at(self, share: float) -> float:
        """The number at a share of the way, three digits of it."""
        return float(f"{self.low * (self.high / self.low) ** share:.3g}")


@dataclass(frozen=True)
class Uniform:
    """Numbers between two bounds.

    Examples:
        >>> Uniform(0.0, 1.0).at(0.25)
        0.25
    """

    low: float
    high: float

    def at(self, share: float) -> float:
        """The number at a share of the way, three digits of it."""
        return float(f"{self.low + (self.high - self.low) * share:.3g}")


@dataclass(frozen=True)
class Choice:
    """One of several options.

    Examples:
        >>> Choice("age", "storm").at(0.7)
        'storm'
    """

    options: tuple[Any, ...]

    def __init__(self, *options: Any) -> None:
        object.__setattr__(self, "options", options)

    def at(self, share: float) -> Any:
        """The option whose part of [0, 1) holds the share."""
        return self.options[min(int(share * len(self.options)), len(self.options) - 1)]


Range = Log | Uniform | Choice


def settings_to_try(
    ranges: Mapping[str, Range], default: Mapping[str, Any], count: int
) -> list[dict[str, Any]]:
    """The default, then ``count`` settings of a scrambled Sobol sequence over the ranges.

    The first settings do not depend on ``count``, so that more can be added to a run.

    Examples:
        >>> tried = settings_to_try({"lr": Log(0.01, 1.0)}, {"lr": 0.1}, 8)
        >>> len(tried), tried[0]
        (9, {'lr': 0.1})
        >>> sum(setting["lr"] < 0.1 for setting in tried[1:])
        4
    """
    if not ranges or not count:
        return [dict(default)]
    points = SobolEngine(len(ranges), scramble=True, seed=0).draw(count).tolist()
    tried = [dict(default)]
    for point in points:
        shares = dict(zip(ranges, point, strict=True))
        tried.append({**default, **{name: ranges[name].at(shares[name]) for name in ranges}})
    return tried
