"""Performance profiles (Dolan and Moré): how often a contender is within tau times the best cost.

As in AlgoPerf, a problem has a target. The cost of a contender is its cost until it first reaches
the target, and infinite if it never does.
"""

import math
from collections.abc import Mapping, Sequence

from fcco_lab.presentation.curves import mean_curve
from fcco_lab.runs import Record

__all__ = ["Costs", "Curve", "Profiles", "costs", "profile", "profiles_of"]

Curve = tuple[Sequence[float], Sequence[float]]
"""Costs, in ascending order, and the values at these points."""

Costs = dict[str, dict[str, float]]
"""By contender, then by problem."""

Profiles = dict[str, tuple[list[float], list[float]]]
"""By contender, multiples of the lowest cost and the fraction of problems solved within each."""


def profiles_of(groups: Mapping[str, Mapping[str, Sequence[Record]]], x: str) -> Profiles:
    """The profiles of the training objective against ``x``, for contenders on all data sets.

    Args:
        groups: runs by data set, then by contender.
        x: "samples", "queries" or "seconds".

    Returns:
        Nothing with fewer than two data sets, or fewer than two such contenders.
    """
    first, *others = groups.values()
    shared = [name for name in first if all(name in other for other in others)]
    if not others or len(shared) < 2:
        return {}
    curves: dict[str, dict[str, Curve]] = {}
    for data, runs in groups.items():
        means = {name: mean_curve(runs[name], x, "objective") for name in shared}
        curves[data] = {name: (grid.tolist(), y.tolist()) for name, (grid, y, _) in means.items()}
    return profile(costs(curves, lower_is_better=True))


def costs(curves: Mapping[str, Mapping[str, Curve]], *, lower_is_better: bool) -> Costs:
    """The cost of each contender until it first reached the target of each problem.

    The target is the best value along the curve of the median contender; for an even number, the
    worse of the two in the middle, so that at least half reach it. An empty curve (all runs
    diverged) counts as the worst.

    Args:
        curves: by problem, then by contender, the same contenders in each problem.
        lower_is_better: whether lower values are better, as for an objective.

    Examples:
        >>> fast, slow = ([0, 10, 20], [1.0, 0.2, 0.1]), ([0, 10, 20], [1.0, 0.5, 0.2])
        >>> costs({"usps": {"fast": fast, "slow": slow}}, lower_is_better=True)
        {'fast': {'usps': 10.0}, 'slow': {'usps': 20.0}}
    """
    sign = 1.0 if lower_is_better else -1.0
    found: Costs = {}
    for problem, by_contender in curves.items():
        signed = {
            name: [(float(x), sign * y) for x, y in zip(*curve, strict=True) if not math.isnan(y)]
            for name, curve in by_contender.items()
        }
        if found and signed.keys() != found.keys():
            raise ValueError(f"problem {problem!r} has different contenders")
        best = sorted(min((y for _, y in points), default=math.inf) for points in signed.values())
        target = best[len(best) // 2]
        for name, points in signed.items():
            cost = next((x for x, y in points if y <= target), math.inf)
            found.setdefault(name, {})[problem] = cost
    return found


def profile(paid: Mapping[str, Mapping[str, float]], *, largest: float = 10.0) -> Profiles:
    """For each contender, taus from 1 to ``largest`` and the fraction of problems solved within.

    These are step functions: a fraction holds from its tau up to the next. The taus contain every
    jump of every contender and are the same for all.

    Examples:
        >>> profile({"fast": {"usps": 10.0, "mnist": 30.0}, "slow": {"usps": 20.0, "mnist": 15.0}})
        {'fast': ([1.0, 2.0, 10.0], [0.5, 1.0, 1.0]), 'slow': ([1.0, 2.0, 10.0], [0.5, 1.0, 1.0])}
    """
    problems = list(next(iter(paid.values()), {}))
    best = {problem: min(by[problem] for by in paid.values()) for problem in problems}
    ratios = {name: [_ratio(by[p], best[p]) for p in problems] for name, by in paid.items()}
    jumps = {ratio for mine in ratios.values() for ratio in mine if ratio <= largest}
    taus = sorted(jumps | {1.0, largest})
    return {
        name: (taus, [sum(ratio <= tau for ratio in mine) / len(mine) for tau in taus])
        for name, mine in ratios.items()
    }


def _ratio(cost: float, best: float) -> float:
    if math.isinf(cost):
        return math.inf  # also if no contender solved it
    if best == 0:
        return 1.0 if cost == 0 else math.inf  # the target was reached at cost 0
    return cost / best
