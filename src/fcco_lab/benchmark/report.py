"""The report of a benchmark, drawn again from its records: tables in Markdown, and figures."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from fcco_lab.benchmark.figures import draw_problem, draw_profiles
from fcco_lab.benchmark.outcomes import NEVER, TARGETS, Cell, Cost, Outcomes, read_outcomes
from fcco_lab.benchmark.solvers import is_of_today
from fcco_lab.files import file_name, write

__all__ = ["write_report"]

_CLAIMS = (
    ("sox", "in-batch", "a table (SOX) beats the slope of the batch (BSGD)"),
    ("sox-updated", "sox", "slopes at u_t beat those at u_{t-1}"),
    ("msvrm-v1", "sox", "v1 is at least as good as SOX"),
    ("msvrm-v2", "msvrm-v1", "v2 beats v1"),
    ("msvrm-v3", "msvrm-v2", "v3 beats v2"),
    ("svrg", "msvrm-v3", "two points are enough"),
    ("msvrm-v2-normalized", "msvrm-v2", "adaptive steps beat plain ones"),
    ("msvrm-v2", "variant-v2", "the correction matters"),
    ("table-adam", "in-batch-adam", "a loss that remembers beats the loss of the batch"),
)
"""First, second, and what is claimed of the first."""

_DASH = "-"


def write_report(directory: Path) -> None:
    """Write ``report.md`` and its figures, from the records in the same directory."""
    outcomes = read_outcomes(directory)
    if not outcomes.cells:
        raise ValueError(f"there are no runs in {directory}: fcco benchmark run makes them")
    problems = list(dict.fromkeys(cell.problem for cell in outcomes.cells))
    parts = [
        "# Who wins where",
        _summary(outcomes),
        *(f"{name} ended with {error}." for name, error in outcomes.errors.items()),
        "## The solver with the least work, and its passes",
        *_quotable("winners", _winners(outcomes)),
        "## fcco against what users have today",
        *_quotable("today", _against_today(outcomes)),
        "## Claims",
        *_quotable("claims", _claims(outcomes)),
        *_costs(outcomes, "1 %"),
        *_costs(outcomes, "0.1 %"),
        *_costs(outcomes, "1 %", seconds=True),
        *_costs(outcomes, "1 %", tuned=False),
        "## Problems",
        _problems(outcomes),
        "![Performance profiles](profiles.png)",
        *(f"![{problem}]({file_name(problem)}.png)" for problem in problems),
    ]
    draw_profiles(outcomes, directory / "profiles.png")
    for problem in problems:
        draw_problem(outcomes, problem, directory / f"{file_name(problem)}.png")
    write(directory / "report.md", "\n\n".join(parts) + "\n")


def _quotable(name: str, part: str) -> list[str]:
    """Mark a part by which pages of the documentation include it (pymdownx.snippets)."""
    return [f"<!-- --8<-- [start:{name}] -->", part, f"<!-- --8<-- [end:{name}] -->"]


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [list(headings), ["---"] * len(headings), *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _number(value: float) -> str:
    """Two digits; a dash for never."""
    if math.isinf(value):
        return _DASH
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def _name(outcomes: Outcomes, cell: Cell) -> str:
    star = "" if outcomes.problems[cell.problem]["known"] else "*"
    star += "*" if cell.problem in outcomes.out_of_reach else ""
    return f"{cell.problem}{star}, {cell.batch}"


def _summary(outcomes: Outcomes) -> str:
    return (
        f"{len(outcomes.cells)} cells (a problem and a batch size), {len(outcomes.solvers)} "
        "solvers. Work is inputs forward + twice the inputs backward at the model, exact passes "
        "included; one pass is the work of one full gradient. A gap is a share of F(w₀) − F*; "
        "with an asterisk F* is not certified, but the best value that is known; with two it is "
        "the best of the cell, because no run came near, and 10 % is the only target. Every solver "
        "has the same number of settings of a Sobol sequence and its default; costs are those of "
        "the best setting for the target, unless it says default. A dash: not reached within the "
        "budget; an empty place: not run, or no such target."
    )


def _winners(outcomes: Outcomes) -> str:
    rows = []
    for cell in outcomes.cells:
        row = [_name(outcomes, cell)]
        for target in TARGETS.values():
            solver, cost = outcomes.best(cell, outcomes.solvers, target)
            never = _DASH if outcomes.has_target(cell, target) else ""
            row.append(never if cost == NEVER else f"{solver} {_number(cost.passes)}")
        rows.append(row)
    return _table(["problem, batch", *TARGETS], rows)


def _against_today(outcomes: Outcomes) -> str:
    """The best of both sides; a factor above 1 is work that fcco saves."""
    today = [name for name in outcomes.solvers if is_of_today(name)]
    ours = [name for name in outcomes.solvers if not is_of_today(name)]
    saved: dict[str, list[str]] = {"1 %": [], "0.1 %": []}
    rows = []
    for cell in outcomes.cells:
        row = [_name(outcomes, cell)]
        for target, cells in saved.items():
            mine = outcomes.best(cell, ours, TARGETS[target])
            theirs = outcomes.best(cell, today, TARGETS[target])
            row += [_cost(*mine), _cost(*theirs), _factor(mine[1], theirs[1])]
            if 2 * mine[1].passes <= theirs[1].passes and mine[1] != NEVER:
                cells.append(f"{_name(outcomes, cell)} ({mine[0]})")
        rows.append(row)
    headings = [f"{what} {target}" for target in saved for what in ("fcco", "today", "factor")]
    lists = [
        f"At most half the work to {target}: {', '.join(cells) or 'nowhere'}."
        for target, cells in saved.items()
    ]
    return "\n\n".join([*lists, _table(["problem, batch", *headings], rows), "(passes; seconds)"])


def _cost(solver: str, cost: Cost) -> str:
    if math.isinf(cost.passes):
        return _DASH
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
                [outcomes.cost(cell, name, target).passes for name in (first, second)]
                for cell in outcomes.cells
                if outcomes.has_run(cell, first) and outcomes.has_run(cell, second)
            ]
            won = sum(a < b for a, b in pairs)
            lost = sum(a > b for a, b in pairs)
            logs = [math.log(b / a) for a, b in pairs if max(a, b) < math.inf]
            ratio = f", {math.exp(sum(logs) / len(logs)):.2g} times" if logs else ""
            row.append(f"{won} : {lost}{ratio}" if won + lost or logs else _DASH)
        rows.append(row)
    note = (
        "Of the cells with runs of both, those in which the first reaches the target with less "
        "work : with more; then how many times the work of the first the second needs, where both "
        "reach it (geometric mean)."
    )
    return _table(["claim", *TARGETS], rows) + "\n\n" + note


def _costs(
    outcomes: Outcomes, target: str, *, tuned: bool = True, seconds: bool = False
) -> list[str]:
    """A heading and a table of all solvers, the best of a row in bold."""
    rows = []
    for cell in outcomes.cells:
        found = [
            outcomes.cost(cell, solver, TARGETS[target], tuned=tuned) for solver in outcomes.solvers
        ]
        costs = [cost.seconds if seconds else cost.passes for cost in found]
        least = min(costs)
        texts = [
            f"**{_number(cost)}**" if cost == least < math.inf else _number(cost) for cost in costs
        ]
        shown = [
            text if outcomes.has_run(cell, solver) else ""
            for text, solver in zip(texts, outcomes.solvers, strict=True)
        ]
        rows.append([_name(outcomes, cell), *shown])
    unit = "Seconds of CPU time" if seconds else "Passes"
    kind = "best of the settings" if tuned else "default, untuned"
    return [f"## {unit} to {target}, {kind}", _table(["problem, batch", *outcomes.solvers], rows)]


def _problems(outcomes: Outcomes) -> str:
    rows = []
    for name in dict.fromkeys(cell.problem for cell in outcomes.cells):
        known = outcomes.problems[name]
        certificate = known["certificate"]
        how = f"Newton, gap below {certificate:.0e}"
        if math.isnan(certificate):
            how = "closed form" if known["known"] else "best found"
        sizes = [f"{known[key]:,}" for key in ("num_samples", "num_blocks", "num_params")]
        values = [f"{known[key]:.6g}" for key in ("first", "best")]
        rows.append([name, *sizes, *values, how])
    return _table(["problem", "samples", "blocks", "parameters", "F(w₀)", "F*", "certified"], rows)
