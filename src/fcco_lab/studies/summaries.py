"""Summaries of the records of a study: rows of a table, and figures."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fcco_lab.files import write

__all__ = ["plot_batches", "summary"]

Records = Sequence[Mapping[str, Any]]
Rows = list[tuple[str, ...]]


def summary(study: str, records: Records) -> Rows:
    """Rows of a table, the first its heading."""
    return _SUMMARIES[study](records)


_GAMMAS = ("theory", "storm", "age", "average")


def _gamma(records: Records) -> Rows:
    rows: Rows = [("gamma", "best in", "mean / best", "worst / best")]
    for gamma in _GAMMAS:
        ratios = [r[gamma] / min(r[g] for g in _GAMMAS) for r in records]
        mean = math.exp(sum(math.log(min(x, 1e6)) for x in ratios) / len(ratios))
        best = sum(x == 1 for x in ratios)
        rows.append((gamma, f"{best}/{len(records)}", f"{mean:.2f}", f"{max(ratios):.3g}"))
    return rows


def _stability(records: Records, quantity: str, bound: float) -> Rows:
    rows: Rows = [("method", "rule", "alpha", f"{quantity}, by step size", "with ChangeBound")]
    groups: dict[tuple[str, ...], dict[bool, list[str]]] = {}
    for r in records:
        key = (r["method"], r["rule"], str(r["alpha"]))
        mark = "" if r[quantity] < bound else "*"
        groups.setdefault(key, {}).setdefault(r["guard"], []).append(f"{r[quantity]:.3g}{mark}")
    return rows + [
        (*key, "  ".join(both[False]), "  ".join(both.get(True, [])))
        for key, both in groups.items()
    ]


def _batches(records: Records) -> Rows:
    """Final objective by inner batch, mean and deviation over seeds, then the test metric."""
    sizes = sorted({r["samples"] for r in records}, reverse=True)
    rows: Rows = [("problem", "method", *(f"k = {size}" for size in sizes))]
    found = {(r["workload"], r["method"], r["samples"]): r for r in records}
    for workload, method in dict.fromkeys((r["workload"], r["method"]) for r in records):
        cells = []
        for size in sizes:
            r = found.get((workload, method, size))
            cells.append(
                "" if r is None else f"{_spread(r['objectives'])} ({_mean(r['metrics']):.3f})"
            )
        rows.append((workload, method, *cells))
    return rows


def _gain(records: Records) -> Rows:
    """beta = "auto" against the best rival, which was chosen on seeds of its own.

    Differences are paired by seed; p is that of a t-test, after Holm's correction over all rows.
    """
    from scipy import stats

    rivals = ("BSGD", "0.1", "0.2", "0.5", "0.9")
    found = []
    for r in records:
        best = min(rivals, key=r["tuning"].__getitem__)
        mine, other = r["objectives"]["auto"], r["objectives"][best]
        differences = [a - b for a, b in zip(mine, other, strict=True)]
        p = float(stats.ttest_1samp(differences, 0.0).pvalue)
        found.append((r, best, mine, other, _mean(differences), p if p == p else 1.0))
    rows: Rows = [("problem", "k", "steps", "best rival", "its objective", "auto", "p", "auto is")]
    order = sorted(range(len(found)), key=lambda k: found[k][-1])
    corrected, highest = {}, 0.0
    for rank, k in enumerate(order):
        highest = max(highest, min(found[k][-1] * (len(found) - rank), 1.0))
        corrected[k] = highest
    for k, (r, best, mine, other, difference, _) in enumerate(found):
        verdict = "equal" if corrected[k] > 0.05 else "better" if difference < 0 else "worse"
        head = r["workload"], str(r["samples"]), str(r["steps"]), best
        rows.append((*head, _spread(other), _spread(mine), _chance(corrected[k]), verdict))
    return rows


def _tracking(records: Records) -> Rows:
    """The error of "auto" and of each fixed gain, relative to the best fixed gain of a setting."""
    rows: Rows = [("beta", "mean / best", "worst / best")]
    best = [min(e for beta, e in r["errors"].items() if beta != "auto") for r in records]
    for beta in records[0]["errors"]:
        ratios = [r["errors"][beta] / least for r, least in zip(records, best, strict=True)]
        mean = math.exp(sum(math.log(min(x, 1e6)) for x in ratios) / len(ratios))
        rows.append((beta, f"{mean:.2f}", f"{max(ratios):.3g}"))
    return rows


def _rivals(records: Records) -> Rows:
    """Test scores, mean and deviation over seeds."""
    rows: Rows = [("problem", "contender", "test scores", "seconds")]
    for r in records:
        scores = ", ".join(f"{name} {_spread(values)}" for name, values in r["scores"].items())
        seconds = f"{_mean(r['seconds']):.1f}" if r["seconds"] else ""
        rows.append((r["problem"], r["contender"], scores or "cannot be imported here", seconds))
    return rows


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values)


def _spread(values: Sequence[float]) -> str:
    if not all(map(math.isfinite, values)):
        lost = sum(not math.isfinite(value) for value in values)
        return f"diverged ({lost} of {len(values)})"
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{_mean(values):.4f} ± {deviation:.4f}"


def _chance(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


_SUMMARIES: dict[str, Callable[[Records], Rows]] = {
    "gamma": _gamma,
    "stability": lambda records: _stability(records, "gradient", 0.9),
    "network": lambda records: _stability(records, "objective", 0.1),
    "batches": _batches,
    "gain": _gain,
    "tracking": _tracking,
    "rivals": _rivals,
}


def plot_batches(records: Records, folder: Path) -> None:
    """One figure per problem: objective and test metric against the inner batch."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    for workload in dict.fromkeys(r["workload"] for r in records):
        mine = [r for r in records if r["workload"] == workload]
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
        for method in dict.fromkeys(r["method"] for r in mine):
            points = sorted((r for r in mine if r["method"] == method), key=lambda r: r["samples"])
            for axes, key in ((left, "objectives"), (right, "metrics")):
                # A point that diverged in any run is left out here; the table counts them.
                finite = [r for r in points if all(map(math.isfinite, r[key]))]
                axes.errorbar(
                    [r["samples"] for r in finite],
                    [_mean(r[key]) for r in finite],
                    [statistics.stdev(r[key]) for r in finite],
                    marker="o",
                    capsize=3,
                    label=method,
                )
        xlabel = "inner samples per block"
        left.set(xscale="log", xlabel=xlabel, ylabel="exact training objective")
        right.set(xscale="log", xlabel=xlabel, ylabel=f"test {mine[0]['metric']}")
        sizes = sorted({r["samples"] for r in mine})
        for axes in (left, right):
            axes.set_xticks(sizes, [str(size) for size in sizes], minor=False)
            axes.minorticks_off()
            axes.grid(alpha=0.3)
        left.legend(fontsize="small")
        figure.suptitle(workload)
        drawn = partial(figure.savefig, format="png", dpi=110)
        write(folder / f"{workload.replace(' ', '-')}.png", drawn)
        plt.close(figure)
