"""Data for the script of the page: mean curves of each data set, and profiles over all of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from fcco_lab.presentation.curves import mean_curve
from fcco_lab.presentation.methods import style_of
from fcco_lab.presentation.profiles import Curve, costs, profile
from fcco_lab.report.groups import Group
from fcco_lab.runs import AXES, METRICS, QUANTITIES

__all__ = ["BUTTONS", "DASHES", "MARKS", "Groups", "curves_figure", "profiles_figure"]

BUTTONS = {
    "samples": "samples",
    "queries": "oracle queries",
    "seconds": "CPU seconds",
    "objective": "train objective",
    **METRICS,
}

DASHES = ("solid", "dash", "dot", "longdash", "dashdot")
MARKS = ("", "circle", "square", "triangle", "diamond", "x", "star", "cross")
"""With the dashes 40 pairs, so that lines can be told apart without their colours."""

Groups = Mapping[str, Sequence[Group]]
"""Groups of runs by data set."""

_Curve = dict[str, list[float]]


def curves_figure(data: str, found: Sequence[Group], numbers: Mapping[str, int]) -> dict[str, Any]:
    """One data set: one line per group of runs that did not all diverge, on every pair of axes."""
    curves = {
        group.label: {x: {y: _curve(group, x, y) for y in QUANTITIES} for x in AXES}
        for group in found
    }
    drawn = [group for group in found if curves[group.label]["samples"]["objective"]["x"]]
    means = {
        y: [value for group in drawn for value in curves[group.label]["samples"][y]["mean"]]
        for y in QUANTITIES
    }
    return {
        "kind": "curves",
        "name": data,
        "x": {key: {"title": title} for key, title in AXES.items()},
        "y": {
            key: {"title": QUANTITIES[key], "scale": _scale(key, means[key])}
            for key in _measured(found)
        },
        "start": ["samples", "objective"],
        "series": [_series(group, curves[group.label], numbers) for group in drawn],
    }


def profiles_figure(by_data: Groups, numbers: Mapping[str, int]) -> dict[str, Any] | None:
    """The profiles over data sets, or None with fewer than two data sets or shared contenders."""
    named = {data: {group.label: group for group in found} for data, found in by_data.items()}
    first, *others = named.values()
    shared = [label for label in first if all(label in other for other in others)]
    if not others or len(shared) < 2:
        return None
    measured = [y for y in QUANTITIES if all(y in _measured(found) for found in by_data.values())]
    drawn: dict[str, Any] = {label: {x: {} for x in AXES} for label in shared}
    for x in AXES:
        for y in measured:
            curves = {
                data: {label: _mean(of[label], x, y) for label in shared}
                for data, of in named.items()
            }
            solved = profile(costs(curves, lower_is_better=y == "objective"))
            for label, (taus, fractions) in solved.items():
                drawn[label][x][y] = _rounded(taus, fractions, [])
    return {
        "kind": "profiles",
        "name": "profiles",
        "x": {key: {"title": f"times the fewest {BUTTONS[key]}"} for key in AXES},
        "y": {key: {"title": "fraction of data sets", "scale": "linear"} for key in measured},
        "start": ["queries", "objective"],
        "series": [_series(first[label], drawn[label], numbers) for label in shared],
    }


def _scale(key: str, means: Sequence[float]) -> str:
    """That on which curves do not lie on one another; "toward 1" is the logarithm of 1 - y.

    Examples:
        >>> [_scale("objective", [2.0, 0.1]), _scale("objective", [2.0, -1.0])]
        ['log', 'linear']
        >>> [_scale("auc", [0.5, 0.99]), _scale("c_index", [0.5, 0.7]), _scale("auc", [0.5, 1.0])]
        ['toward 1', 'linear', 'linear']
    """
    if key == "objective":
        return "log" if all(y > 0 for y in means) else "linear"
    low, high = min(means, default=0.0), max(means, default=0.0)
    return "toward 1" if high < 1 and 1 - low > 10 * (1 - high) else "linear"


def _measured(found: Sequence[Group]) -> list[str]:
    """The objective, and the metrics that some run has."""
    points = [point for group in found for record in group.records for point in record["curve"]]
    return [key for key in QUANTITIES if key == "objective" or any(key in p for p in points)]


def _mean(group: Group, x: str, y: str) -> Curve:
    grid, mean, _ = mean_curve(group.measured, x, y)
    return grid.tolist(), mean.tolist()


def _curve(group: Group, x: str, y: str) -> _Curve:
    grid, mean, sd = (part.tolist() for part in mean_curve(group.measured, x, y))
    return _rounded(grid, mean, sd if len(group.measured) > 1 else [])


def _rounded(x: Sequence[float], mean: Sequence[float], sd: Sequence[float]) -> _Curve:
    lists = {"x": x, "mean": mean, "sd": sd}
    return {key: [float(f"{v:.6g}") for v in values] for key, values in lists.items()}


def _series(group: Group, curves: dict[str, Any], numbers: Mapping[str, int]) -> dict[str, Any]:
    """A line: the colour is the method's, and no other of 40 lines has its dash and mark."""
    number = numbers[group.label]
    style = style_of(group.records[0]["config"]["method"])
    return {
        "name": group.label,
        "colour": (style.light, style.dark),
        "dash": DASHES[number % len(DASHES)],
        "mark": MARKS[number % len(MARKS)],
        "curves": curves,
    }
