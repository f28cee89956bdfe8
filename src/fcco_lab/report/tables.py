"""One table per data set: one row per group of runs, the best of each column in bold."""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from fcco_lab.report.groups import Group
from fcco_lab.runs import METRICS

__all__ = ["table"]


class _Column(NamedTuple):
    heading: str
    key: str
    sign: int
    """+1 if higher is better, -1 if lower is better; 0 is not judged: a cost, or a given number."""
    decimals: int


_COLUMNS = (
    _Column("objective", "objective", -1, 4),
    *(_Column(label, key, 1, 4) for key, label in METRICS.items()),
    _Column("steps", "step", 0, 0),
    _Column("queries", "queries", 0, 0),
    _Column("CPU seconds", "seconds", 0, 1),
)


def table(data: str, found: Sequence[Group]) -> str:
    """The table of one data set, in HTML; its headings are buttons that sort it."""
    records = [record for group in found for record in group.records]
    # A metric that no run has gets no column.
    shown = [
        column for column in _COLUMNS if column.sign < 1 or any(column.key in r for r in records)
    ]
    headings = ["contender", "runs", *(column.heading for column in shown), "diverged"]
    columns = [_cells(column, found) for column in shown]
    rows = []
    for index, group in enumerate(found):
        running, diverged = len(group.having("running")), len(group.having("diverged"))
        note = f' <small class="running">{running} running</small>' if running else ""
        label = escape(group.label)
        cells = [
            f'<th scope="row" data-sort="{label}">{label}{note}</th>',
            _cell(len(group.records), str(len(group.records))),
            *(column[index] for column in columns),
            _cell(diverged, f'<span class="diverged">{diverged}</span>' if diverged else "0"),
        ]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    heads = "".join(
        f'<th scope="col" aria-sort="none"><button type="button">{name}</button></th>'
        for name in headings
    )
    words = {"num_blocks": "blocks", "train_size": "training samples", "test_size": "test samples"}
    sizes = [
        f"{records[0][key]:,} {word}"
        for key, word in words.items()
        if records[0].get(key) is not None and len({record.get(key) for record in records}) == 1
    ]
    caption = escape(data) + (f" ({', '.join(sizes)})" if sizes else "") + ": the end of each run"
    return (
        '<div class="box" role="region" tabindex="0" '
        f'aria-label="Table of {escape(data)}"><table class="results">'
        f"<caption><span>{caption}</span></caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>\n{chr(10).join(rows)}\n</tbody></table></div>"
    )


def _cells(column: _Column, found: Sequence[Group]) -> list[str]:
    pairs = [group.mean_and_deviation(column.key) for group in found]
    # As many digits as the smallest value needs.
    sizes = [abs(mean) for mean, _ in pairs if math.isfinite(mean) and mean]
    decimals = column.decimals
    if column.key == "objective" and sizes:
        decimals = min(9, max(decimals, 2 - math.floor(math.log10(min(sizes)))))

    def write(value: float) -> str:
        return f"{value:,.{decimals}f}" if math.isfinite(value) else "\u2013"

    # A mean without diverged runs, or over unfinished runs, is never marked as the best.
    judged = [
        math.isfinite(mean) and bool(group.having("finished")) and not group.having("diverged")
        for (mean, _), group in zip(pairs, found, strict=True)
    ]
    rivals = [mean for (mean, _), able in zip(pairs, judged, strict=True) if able]
    best = ""
    if column.sign and len({write(mean) for mean in rivals}) > 1:  # if all are equal, none is best
        best = write(max(rivals, key=lambda mean: column.sign * mean))
    spreads = [f"± {write(sd)}" if column.sign and math.isfinite(sd) else "" for _, sd in pairs]
    width = max(map(len, spreads))
    cells = []
    for (mean, _), spread, able in zip(pairs, spreads, judged, strict=True):
        text = f"<b>{write(mean)}</b>" if able and write(mean) == best else write(mean)
        if width:  # an empty cell keeps its width, so that the decimal points are aligned
            text += f' <span class="sd" style="min-width:{width}ch">{spread}</span>'
        cells.append(_cell(mean, text))
    return cells


def _cell(value: float, text: str) -> str:
    return f'<td data-sort="{value if math.isfinite(value) else ""}">{text}</td>'
