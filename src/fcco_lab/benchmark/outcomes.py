"""What records say: the cost of each solver to each target."""

import math
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median_high
from typing import Any, NamedTuple

from fcco.optim.arguments import user_stacklevel
from fcco_lab.benchmark.meter import GRID
from fcco_lab.results import Results

__all__ = ["NEVER", "TARGETS", "Cell", "Cost", "Outcomes", "read_outcomes"]

TARGETS = {"10 %": 1e-1, "1 %": 1e-2, "0.1 %": 1e-3, "1e-4": 1e-4, "1e-6": 1e-6}
"""Gaps to reach, as a share of F(w_0) - F*."""

_NEAR = 1e-2
"""An optimum that is not certified counts if some run comes as near as this."""
_ONLY_TARGET = 1e-1
"""Of other problems; a finer one would only say which run ended lowest."""


class Cell(NamedTuple):
    """A problem with a batch size, on which all solvers have the same budget."""

    problem: str
    batch: int


class Cost(NamedTuple):
    """What a solver paid until it reached a target; infinite if it never did."""

    passes: float
    seconds: float


NEVER = Cost(math.inf, math.inf)


@dataclass(frozen=True)
class Run:
    """One record, with gaps that refer to the best value that is known."""

    cell: Cell
    solver: str
    setting: int
    gaps: list[float]
    seconds_per_pass: float

    def cost(self, target: float) -> Cost:
        """The first point of the grid at which the gap was small enough; time is in proportion."""
        for passes, gap in zip(GRID, self.gaps, strict=False):
            if gap <= target:
                return Cost(passes, passes * self.seconds_per_pass)
        return NEVER


class Outcomes:
    """All runs, by cell and solver.

    Args:
        problems: what is known of each problem.
        runs: all runs.
        errors: what the runs that failed said, by their names.
        out_of_reach: problems whose gaps refer to the best run of the cell.
    """

    def __init__(
        self,
        problems: Mapping[str, Mapping[str, Any]],
        runs: Iterable[Run],
        errors: Mapping[str, str],
        out_of_reach: Set[str] = frozenset(),
    ) -> None:
        self.problems, self.errors, self.out_of_reach = problems, errors, out_of_reach
        self._runs: dict[tuple[Cell, str], list[Run]] = defaultdict(list)
        for run in runs:
            self._runs[run.cell, run.solver].append(run)

    @cached_property
    def cells(self) -> list[Cell]:
        """In the order of the problems, small batches first."""
        order = {name: place for place, name in enumerate(self.problems)}
        found = {cell for cell, _ in self._runs}
        return sorted(found, key=lambda cell: (order[cell.problem], cell.batch))

    @cached_property
    def solvers(self) -> list[str]:
        """In the order of the records."""
        return list(dict.fromkeys(solver for _, solver in self._runs))

    def has_run(self, cell: Cell, solver: str) -> bool:
        """Whether there are runs of the solver in this cell."""
        return (cell, solver) in self._runs

    def has_target(self, cell: Cell, target: float) -> bool:
        """Whether the optimum of this cell is known well enough for the target."""
        return cell.problem not in self.out_of_reach or target >= _ONLY_TARGET

    def cost(self, cell: Cell, solver: str, target: float, *, tuned: bool = True) -> Cost:
        """The cost with the best setting for this target, or with the default alone.

        With several seeds a setting counts with its median.
        """
        if not self.has_target(cell, target):
            return NEVER
        by_setting: dict[int, list[Cost]] = defaultdict(list)
        for run in self._runs.get((cell, solver), ()):
            if tuned or run.setting == 0:
                by_setting[run.setting].append(run.cost(target))
        return min(map(median_high, by_setting.values()), default=NEVER)

    def best(self, cell: Cell, solvers: Iterable[str], target: float) -> tuple[str, Cost]:
        """The solver with the least work, and its cost."""
        return min(
            ((solver, self.cost(cell, solver, target)) for solver in solvers),
            key=lambda found: found[1],
            default=("", NEVER),
        )

    def envelope(self, cell: Cell, solver: str) -> list[float]:
        """The least gap of any setting at each point of the grid."""
        runs = self._runs.get((cell, solver), [])
        length = max((len(run.gaps) for run in runs), default=0)
        return [min(run.gaps[k] for run in runs if k < len(run.gaps)) for k in range(length)]


def read_outcomes(directory: Path) -> Outcomes:
    """The records of a directory: ``problems.jsonl`` and ``runs.jsonl``.

    If the optimum of a problem is not certified, gaps refer to the best value that is known. But an
    optimizer that is given much more work finds values of a network that nobody reaches; there gaps
    refer to the best run of the cell, as AlgoPerf sets targets. A broken record is left out, with a
    warning that names it.
    """
    problems = Results(directory / "problems.jsonl").records
    file = directory / "runs.jsonl"
    least: dict[str | Cell, float] = defaultdict(lambda: 1.0)
    read, errors = [], {}
    results = Results(file)
    for number in results.broken:
        _leave_out(f"line {number} of {file}: it is no record")
    for name, record in results.records.items():
        try:
            run = _read_run(record)
            problems[run.cell.problem]["known"]
        except (KeyError, TypeError, ValueError) as flaw:
            _leave_out(f"{name!r} of {file}: {flaw!r}")
            continue
        for place in (run.cell, run.cell.problem):
            least[place] = min(least[place], *run.gaps, 1.0)
        read.append(run)
        if "error" in record:
            errors[name] = str(record["error"])
    out_of_reach = {
        name for name, facts in problems.items() if not facts["known"] and least[name] > _NEAR
    }
    runs = []
    for run in read:
        name = run.cell.problem
        base = least[run.cell] if name in out_of_reach else min(least[name], 0.0)
        if problems[name]["known"] or base == 1.0:  # if no run improved, no gap is small
            base = 0.0
        runs.append(replace(run, gaps=[(gap - base) / (1 - base) for gap in run.gaps]))
    return Outcomes(problems, runs, errors, out_of_reach)


def _leave_out(what: str) -> None:
    warnings.warn(f"left out {what}", stacklevel=user_stacklevel())


def _read_run(record: Mapping[str, Any]) -> Run:
    """A record as it is, with gaps that refer to the optimum as far as it was known."""
    problem, solver, batch, setting, _ = record["name"].split()
    pace = record["seconds"] / max(record["passes"], 1e-9)
    gaps = [float(gap) for gap in record["gaps"]]
    return Run(Cell(problem, int(batch)), solver, int(setting), gaps, pace)
