"""One table per data set: one row per group of runs, the best of each column in bold."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from fcco_lab.report.averages import last, latest, mean_and_deviation
from fcco_lab.report.groups import Group
from fcco_lab.runs import METRICS, Record

__all__ = ["table"]

DASH = "\u2013"


@dataclass(frozen=True)
class _Column:
    heading: str
    key: str
    sign: int = 0
    """+1 if higher is better, -1 if lower is better; 0 is not judged: a cost, or a given number."""
    decimals: int | None = 0
    """The number of digits; None: as many as the smallest value needs."""

    def value(self, record: Record) -> float:
        """Results are those at the end of a run, costs those of its latest evaluation."""
        return (last if self.sign else latest)(record, self.key)


_COLUMNS = (
    _Column("objective", "objective", -1, None),
    *(_Column(label, key, 1, 4) for key, label in METRICS.items()),
    _Column("steps", "step"),
    _Column("queries", "queries"),
    _Column("CPU seconds", "seconds", decimals=1),
)


def table(data: str, found: Sequence[Group]) -> str:
    """The table of one data set, in HTML; its headings are buttons that sort it."""
    shown = [column for column in _COLUMNS if column.sign < 1 or _has(column, found)]
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
    return (
        '<div class="box" role="region" tabindex="0" '
        f'aria-label="Table of {escape(data)}"><table class="results">'
        f"<caption>{_caption(data, found)}</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>\n{chr(10).join(rows)}\n</tbody></table></div>"
    )


def _has(column: _Column, found: Sequence[Group]) -> bool:
    """Whether some run has such a metric."""
    return any(column.key in record for group in found for record in group.records)


def _caption(data: str, found: Sequence[Group]) -> str:
    words = {"num_blocks": "blocks", "train_size": "training samples", "test_size": "test samples"}
    records = [record for group in found for record in group.records]
    told = []
    for key, word in words.items():
        sizes = {record.get(key) for record in records}
        if len(sizes) == 1 and isinstance(size := sizes.pop(), int):
            told.append(f"{size:,} {word}")
    sizes_told = f" ({', '.join(told)})" if told else ""
    return f"<span>{escape(data)}{sizes_told}: the end of each run</span>"


def _cells(column: _Column, found: Sequence[Group]) -> list[str]:
    pairs = [mean_and_deviation([column.value(r) for r in g.measured]) for g in found]
    means = [mean for mean, _ in pairs]
    write = _writer(column, [mean for mean in means if math.isfinite(mean)])
    judged = [m for m, g in zip(means, found, strict=True) if _judged(g) and math.isfinite(m)]
    best = write(max(judged, key=lambda mean: column.sign * mean)) if judged else ""
    if not column.sign or len({write(mean) for mean in judged}) < 2:
        best = ""  # if all are equal, none is best
    spreads = [f"± {write(sd)}" if column.sign and sd == sd else "" for _, sd in pairs]
    width = max(map(len, spreads))
    cells = []
    for mean, spread, group in zip(means, spreads, found, strict=True):
        text = write(mean) if math.isfinite(mean) else DASH
        text = f"<b>{text}</b>" if text == best and _judged(group) else text
        if width:  # an empty cell keeps its width, so that the decimal points are aligned
            text += f' <span class="sd" style="min-width:{width}ch">{spread}</span>'
        cells.append(_cell(mean, text))
    return cells


def _judged(group: Group) -> bool:
    """A mean without diverged runs, or over unfinished runs, is never marked as the best."""
    return bool(group.having("finished")) and not group.having("diverged")


def _cell(value: float, text: str) -> str:
    return f'<td data-sort="{value if math.isfinite(value) else ""}">{text}</td>'


def _writer(column: _Column, means: Sequence[float]) -> Callable[[float], str]:
    decimals, sizes = column.decimals, [abs(mean) for mean in means if mean]
    if decimals is None:
        if sizes and (max(sizes) >= 1e5 or min(sizes) < 1e-6):
            return lambda value: f"{value:.2e}"
        decimals = max(4, 2 - math.floor(math.log10(min(sizes)))) if sizes else 4
    return lambda value: f"{value:,.{decimals}f}"
