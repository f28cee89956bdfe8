"""One figure per problem, and performance profiles."""

from pathlib import Path

from fcco_lab.benchmark.meter import GRID
from fcco_lab.benchmark.outcomes import TARGETS, Outcomes
from fcco_lab.presentation.canvas import make_canvas, save
from fcco_lab.presentation.profiles import profile

__all__ = ["draw_problem", "draw_profiles"]

# Hues after Okabe and Ito, which the colour-blind can tell apart; grey for full-batch methods.
_COLOURS = {
    "lbfgs": "#777777",
    "in-batch-adam": "#111827",
    "large-batch": "#0b7f8a",
    "table-adam": "#0072b2",
    "sox-updated": "#e69f00",
    "sox": "#d55e00",
    "msvrm-v1": "#5b3fa8",
    "msvrm-v2": "#008a64",
    "msvrm-v3": "#aa3e98",
    "svrg": "#1d4ed8",
}
_OTHERS = ("#7b3f00", "#be185d", "#4d7c0f", "#9a3412")


def _colour(solver: str, others: list[str]) -> str:
    if solver in _COLOURS:
        return _COLOURS[solver]
    return _OTHERS[others.index(solver) % len(_OTHERS)]


def draw_problem(outcomes: Outcomes, problem: str, path: Path) -> None:
    """Best gap of any setting against work, one panel per batch size.

    Named are the usual solvers and those that reach a target first; the others are thin lines.
    """
    cells = [cell for cell in outcomes.cells if cell.problem == problem]
    winners = {
        outcomes.best(cell, outcomes.solvers, target)[0]
        for cell in cells
        for target in TARGETS.values()
    }
    named = [name for name in outcomes.solvers if name in winners or name in _COLOURS]
    others = [name for name in named if name not in _COLOURS]
    figure, axes = make_canvas(
        len(cells), xlabels=["passes (work of one full gradient)"], ylabel="gap", share_y=True
    )
    for place, cell in zip(axes, cells, strict=True):
        place.set_title(f"batch of {cell.batch}", fontsize=10)
        place.set_xscale("log")
        place.set_yscale("log")
        place.set_ylim(1e-2 if problem in outcomes.out_of_reach else 1e-7, 1.5)
        for solver in outcomes.solvers:
            gaps = [max(gap, 1e-9) for gap in outcomes.envelope(cell, solver)]
            if solver in named:
                colour, width, label = _colour(solver, others), 1.6, solver
            else:
                colour, width, label = "#cccccc", 0.8, None
            place.step(GRID[: len(gaps)], gaps, where="post", color=colour, lw=width, label=label)
    kind = "gap to the optimum" if outcomes.problems[problem]["known"] else "gap to the best found"
    save(figure, axes, path, order=named, title=f"{problem}: {kind}, best of all settings")


def draw_profiles(outcomes: Outcomes, path: Path) -> None:
    """The share of cells in which a solver needs at most tau times the work of the best one."""
    targets = ["1 %", "0.1 %"]
    figure, axes = make_canvas(
        len(targets), xlabels=["times the work of the best"], ylabel="share of cells", share_y=True
    )
    named = [name for name in outcomes.solvers if name in _COLOURS]
    for place, target in zip(axes, targets, strict=True):
        paid = {
            solver: {
                f"{cell.problem} {cell.batch}": outcomes.cost(cell, solver, TARGETS[target]).passes
                for cell in outcomes.cells
            }
            for solver in outcomes.solvers
        }
        place.set_title(f"to {target}", fontsize=10)
        place.set_xscale("log")
        for solver, (taus, shares) in profile(paid, largest=30.0).items():
            label = solver if solver in named else None
            colour = _COLOURS.get(solver, "#cccccc")
            width = 1.6 if label else 0.8
            place.step(taus, shares, where="post", color=colour, lw=width, label=label)
    save(figure, axes, path, order=named, title="How often a solver is near the best")
