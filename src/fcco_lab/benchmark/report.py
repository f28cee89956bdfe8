"""The report of a benchmark, drawn again from its records: tables in Markdown, and figures."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from fcco_lab.benchmark.figures import draw_problem, draw_profiles
from fcco_lab.benchmark.outcomes import TARGETS, Cell, Cost, Outcomes, read_outcomes
from fcco_lab.benchmark.solvers import is_of_today
from fcco_lab.files import write

__all__ = ["write_report"]

_CLAIMS = (
    ("sox", "in-batch", "a table (SOX) beats the slope of the batch (BSGD)"),
    ("sox-updated", "sox", "slopes at u_t beat those at u_{t-1}"),
    ("msvrm-v1", "sox", "v1 is at least as good as SOX"),
    ("msvrm-v2", "msvrm-v1", "v2 beats v1"),
    ("msvrm-v3", "msvrm-v2", "v3 beats v2"),
    ("msvrm-v2-normalized", "msvrm-v2", "adaptive steps beat plain ones"),
)
"""First, second, and what is claimed of the first."""


def write_report(records: Path, output: Path) -> None:
    """Write ``report.md`` and its figures.

    Args:
        records: the directory of the records.
        output: the directory of the report.
    """
    outcomes = read_outcomes(records)
    if not outcomes.cells:
        raise ValueError(f"there are no runs in {records}: fcco benchmark run makes them")
    problems = list(dict.fromkeys(cell.problem for cell in outcomes.cells))
    parts = [
        "# Who wins where",
        _summary(outcomes),
        "## The solver with the least work, and its passes",
        _winners(outcomes),
        "## fcco against what users have today",
        _against_today(outcomes),
        "## Claims",
        _claims(outcomes),
        *_work(outcomes, "1 %", tuned=True),
        *_work(outcomes, "0.1 %", tuned=True),
        *_work(outcomes, "1 %", tuned=False),
        "## Problems",
        _problems(outcomes),
        "![Performance profiles](profiles.png)",
        *(f"![{problem}]({problem}.png)" for problem in problems),
    ]
    draw_profiles(outcomes, output / "profiles.png")
    for problem in problems:
        draw_problem(outcomes, problem, output / f"{problem}.png")
    write(output / "report.md", "\n\n".join(parts) + "\n")


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [list(headings), ["---"] * len(headings), *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _number(value: float) -> str:
    """Two digits; a dash for never."""
    if math.isinf(value):
        return "–"
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def _name(outcomes: Outcomes, cell: Cell) -> str:
    star = "" if outcomes.problems[cell.problem]["known"] else "*"
    return f"{cell.problem}{star}, {cell.batch}"


def _summary(outcomes: Outcomes) -> str:
    return (
        f"{len(outcomes.cells)} cells (a problem and a batch size), {len(outcomes.solvers)} "
        "solvers. Work is inputs forward + 2 × inputs backward at the model, exact passes "
        "included; one pass is the work of one full gradient. A gap is a share of F(w₀) − F*; "
        "with an asterisk F* is not certified, and is the best value that any run found. Every "
        "solver has the same number of settings of a Sobol sequence and its default; costs are "
        "those of the best setting for the target, unless it says default. A dash: not reached "
        "within the budget."
    )


def _winners(outcomes: Outcomes) -> str:
    rows = []
    for cell in outcomes.cells:
        row = [_name(outcomes, cell)]
        for target in TARGETS.values():
            solver, cost = outcomes.best(cell, outcomes.solvers, target)
            row.append("–" if cost.passes == math.inf else f"{solver} {_number(cost.passes)}")
        rows.append(row)
    return _table(["problem, batch", *TARGETS], rows)


def _against_today(outcomes: Outcomes) -> str:
    """The best of both sides; a factor above 1 is work that fcco saves."""
    today = [name for name in outcomes.solvers if is_of_today(name)]
    ours = [name for name in outcomes.solvers if not is_of_today(name)]
    rows = []
    for cell in outcomes.cells:
        row = [_name(outcomes, cell)]
        for target in ("1 %", "0.1 %"):
            mine = outcomes.best(cell, ours, TARGETS[target])
            theirs = outcomes.best(cell, today, TARGETS[target])
            row += [_cost(*mine), _cost(*theirs), _factor(mine[1], theirs[1])]
        rows.append(row)
    headings = [
        f"{what} {target}" for target in ("1 %", "0.1 %") for what in ("fcco", "today", "factor")
    ]
    return _table(["problem, batch", *headings], rows) + "\n\n(passes; seconds of CPU time)"


def _cost(solver: str, cost: Cost) -> str:
    if math.isinf(cost.passes):
        return "–"
    return f"{solver} {_number(cost.passes)}; {_number(cost.seconds)} s"


def _factor(mine: Cost, theirs: Cost) -> str:
    if math.isinf(mine.passes):
        return "" if math.isinf(theirs.passes) else "0"
    factor = theirs.passes / mine.passes
    if math.isinf(factor):
        return "**∞**"
    return f"**{factor:.1f}**" if factor >= 2 else f"{factor:.1f}"


def _claims(outcomes: Outcomes) -> str:
    """For each claim and target: cells won, lost and even, and the mean ratio of work."""
    rows = []
    for first, second, claim in _CLAIMS:
        if first not in outcomes.solvers or second not in outcomes.solvers:
            continue
        row = [f"{claim} ({first} / {second})"]
        for target in TARGETS.values():
            pairs = [
                (
                    outcomes.cost(cell, first, target).passes,
                    outcomes.cost(cell, second, target).passes,
                )
                for cell in outcomes.cells
            ]
            won = sum(a < b for a, b in pairs)
            lost = sum(a > b for a, b in pairs)
            logs = [math.log(b / a) for a, b in pairs if max(a, b) < math.inf]
            ratio = f", ×{math.exp(sum(logs) / len(logs)):.2g}" if logs else ""
            row.append(f"{won} : {lost}{ratio}" if won + lost or logs else "–")
        rows.append(row)
    note = (
        "Cells in which the first reaches the target with less work : with more; then how many "
        "times the work of the first the second needs, where both reach it (geometric mean)."
    )
    return _table(["claim", *TARGETS], rows) + "\n\n" + note


def _work(outcomes: Outcomes, target: str, *, tuned: bool) -> list[str]:
    rows = []
    for cell in outcomes.cells:
        costs = [
            outcomes.cost(cell, solver, TARGETS[target], tuned=tuned).passes
            for solver in outcomes.solvers
        ]
        least = min(costs)
        texts = [
            f"**{_number(cost)}**" if cost == least < math.inf else _number(cost) for cost in costs
        ]
        rows.append([_name(outcomes, cell), *texts])
    kind = "best of the settings" if tuned else "default, untuned"
    return [f"## Passes to {target}, {kind}", _table(["problem, batch", *outcomes.solvers], rows)]


def _problems(outcomes: Outcomes) -> str:
    rows = []
    for name in dict.fromkeys(cell.problem for cell in outcomes.cells):
        known = outcomes.problems[name]
        certificate = known["certificate"]
        how = "best found"
        if known["known"]:
            how = (
                "closed form" if math.isnan(certificate) else f"Newton, gap below {certificate:.0e}"
            )
        sizes = [f"{known[key]:,}" for key in ("num_samples", "num_blocks", "num_params")]
        values = [f"{known[key]:.6g}" for key in ("first", "best")]
        rows.append([name, *sizes, *values, how])
    return _table(["problem", "samples", "blocks", "parameters", "F(w₀)", "F*", "certified"], rows)
