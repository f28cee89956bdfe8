"""The parts of the page around tables and plots: its head, the controls, the list of all runs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fcco_lab.presentation.naming import contender
from fcco_lab.report.plots import BUTTONS
from fcco_lab.runs import Record

__all__ = ["facts", "figure", "listing", "statuses"]

_STATUSES = ("finished", "running", "diverged")


def facts(records: Sequence[Record]) -> str:
    """The numbers of runs, contenders, data sets and seeds, as a list of terms."""
    configs = [record["config"] for record in records]
    counts = {
        "run": len(records),
        "contender": len({contender(record) for record in records}),
        "data set": len({config["data"] for config in configs}),
        "seed": len({config.get("seed") for config in configs}),
    }
    return "".join(
        f"<div><dt>{word if count == 1 else word + 's'}</dt><dd>{count}</dd></div>"
        for word, count in counts.items()
    )


def statuses(records: Sequence[Record]) -> str:
    """The number of runs in each status that occurs."""
    counts = Counter(record["status"] for record in records)
    return "".join(
        f'<li class="{status}">{counts[status]:,} {status}</li>'
        for status in _STATUSES
        if counts[status]
    )


def figure(index: int, drawn: Mapping[str, Any], *, label: str, caption: str) -> str:
    """The place of a plot, with a row of buttons for each axis; the script fills it."""
    if not drawn["series"]:
        return '<p class="note">No run has a curve to show.</p>'
    words = {"curves": ("x axis", "y axis"), "profiles": ("cost", "target")}[drawn["kind"]]
    rows = []
    for axis, word, start in zip("xy", words, drawn["start"], strict=True):
        buttons = "".join(
            f'<button type="button" data-axis="{axis}" data-key="{key}" '
            f'aria-pressed="{"true" if key == start else "false"}">{BUTTONS[key]}</button>'
            for key in drawn[axis]
        )
        rows.append(
            f'<div class="row"><span class="word">{word}</span>'
            f'<div class="buttons" role="group" aria-label="{word}">{buttons}</div></div>'
        )
    return (
        f'<figure class="plot {drawn["kind"]}" data-figure="{index}" '
        f'aria-label="{escape(label)}">'
        f'<div class="controls">{"".join(rows)}</div><div class="canvas"></div>'
        f'<div class="legend" role="group" aria-label="shown curves"></div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def listing(records: Sequence[Record]) -> str:
    """One row per run: its name, settings, status and, if it diverged, the reason."""
    rows = []
    for record in records:
        status = escape(str(record["status"]))
        settings = ", ".join(
            f"{option}={'none' if value is None else value}"
            for option, value in record["config"].items()
        )
        rows.append(
            f'<tr><th scope="row">{escape(str(record["name"]))}</th>'
            f'<td><span class="{status}">{status}</span></td>'
            f"<td>{escape(str(record.get('reason') or ''))}</td><td>{escape(settings)}</td></tr>"
        )
    return "\n".join(rows)
