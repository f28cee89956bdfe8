"""Drawing of figures and tables from their runs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fcco_lab.files import write
from fcco_lab.presentation.figures import plot_axes, plot_panels, plot_profiles
from fcco_lab.presentation.naming import contender, data_of, grouped
from fcco_lab.presentation.profiles import profiles_of
from fcco_lab.presentation.tables import cross_table, markdown_table
from fcco_lab.reproduction.plan import ABLATIONS, VERSIONS
from fcco_lab.runs import AXES, Record

__all__ = ["draw"]

By = Callable[[Record], str]


def _version(record: Record) -> str:
    method = record["config"]["method"]
    names = VERSIONS if method in VERSIONS else ABLATIONS
    return f"{data_of(record)}, version {1 + names.index(method)}"


def _network(record: Record) -> str:
    return str(record["config"]["network"])


def _blocks(record: Record) -> str:
    return f"B1 = {record['config']['blocks_per_step']}"


def _gamma(record: Record) -> str:
    return f"γ = {record['config']['gamma']}"


def _who_chose(record: Record) -> str:
    # The runs with tuned settings have a constant step size, as in the paper.
    chosen = "default" if record["config"]["decay"] == "linear" else "tuned"
    return f"{contender(record)}, {chosen}"


class _Artefact(NamedTuple):
    """What a panel and a line are, if there is a figure, and the sides of a table, if there is one.

    There is one figure for each horizontal axis.
    """

    title: str = ""
    panel: By | None = None
    line: By = contender
    sides: tuple[By, By] | None = None


_ARTEFACTS = {
    "figure1": _Artefact("Training objective", data_of),
    "figure2": _Artefact("MSVR and its variants", _version),
    "figure3": _Artefact("Networks", _network),
    "figure4": _Artefact("Blocks per step", contender, _blocks),
    "many-tasks": _Artefact("100 tasks, B1 of them per step", _blocks, sides=(contender, _blocks)),
    "gammas": _Artefact("Corrections of u", contender, _gamma, sides=(_gamma, contender)),
    "defaults": _Artefact(sides=(_who_chose, data_of)),
}


def draw(name: str, records: Sequence[Record], place: Path) -> list[Path]:
    """Write the figures or tables of ``name`` into ``place``; the files written."""
    if name.startswith("table-"):
        return _draw_table(name.removeprefix("table-"), records, place)
    found = _ARTEFACTS[name]
    written = []
    if found.panel:
        options: dict[str, Any] = {"by": found.line, "title": found.title}
        options["share_y"] = len({*map(data_of, records)}) == 1
        for x in AXES:
            written.append(place / f"{name}-{x}.png")
            panels = [(panel, runs, x) for panel, runs in grouped(records, found.panel).items()]
            plot_panels(panels, written[-1], **options)
    if found.sides:
        row, column = found.sides
        written.append(place / f"{name}.md")
        parts = [
            f"{words}:\n\n{cross_table(records, key, row=row, column=column)}\n"
            for key, words in (("objective", "Training objective"), ("auc", "Test AUC"))
        ]
        write(written[-1], "\n".join(parts))
    return written


def _draw_table(key: str, records: Sequence[Record], place: Path) -> list[Path]:
    """The table at equal work and at equal cost, the curves of each data set, and profiles."""
    written = [place / f"table-{key}.md"]
    parts = ["At equal work:\n", markdown_table(records, key)]
    for x in AXES:
        parts += [f"\nAt equal {x}:\n", markdown_table(records, key, equal=x)]
    write(written[0], "\n".join(parts) + "\n")
    by_data = grouped(records, data_of)
    for data, runs in by_data.items():
        written.append(place / f"curves-{data}.png")
        plot_axes(runs, written[-1], title=data)
    groups = {data: grouped(runs, contender) for data, runs in by_data.items()}
    for x in ("queries", "seconds"):
        if profiles := profiles_of(groups, x):
            written.append(place / f"profiles-{x}.png")
            title = "Data sets solved within a factor of the best"
            plot_profiles(profiles, written[-1], cost=x, title=title)
    return written
