"""Drawing of figures and tables from their runs."""

from collections.abc import Callable, Sequence
from pathlib import Path

from fcco_lab.presentation.curves import mean_curve
from fcco_lab.presentation.figures import plot_axes, plot_panels, plot_profiles
from fcco_lab.presentation.naming import contender, grouped
from fcco_lab.presentation.profiles import Curve, costs, profile
from fcco_lab.presentation.tables import cross_table, markdown_table
from fcco_lab.reproduction.plan import ABLATIONS, VERSIONS
from fcco_lab.runs import Record
from fcco_lab.training.journal import write_text

__all__ = ["draw"]


def draw(name: str, records: Sequence[Record], place: Path) -> list[Path]:
    """Write the figures or tables of ``name`` into ``place``; the files written."""
    return _DRAWN[name](records, place)


def _data(record: Record) -> str:
    return str(record["config"]["data"])


def _panels(
    records: Sequence[Record],
    path: Path,
    *,
    panel: Callable[[Record], str],
    line: Callable[[Record], str] = contender,
    title: str,
) -> list[Path]:
    """One figure for each axis."""
    written = []
    for x in ("samples", "queries", "seconds"):
        file = path.with_name(f"{path.name}-{x}.png")
        panels = grouped(records, panel)
        plot_panels(
            panels, file, by=line, x=x, title=title, share_y=len({*map(_data, records)}) == 1
        )
        written.append(file)
    return written


def _figure1(records: Sequence[Record], place: Path) -> list[Path]:
    return _panels(records, place / "figure1", panel=_data, title="Training objective")


def _profiles(records: Sequence[Record], place: Path) -> list[Path]:
    """Profiles by queries and by seconds, for the contenders that are on all data sets."""
    sets = {data: grouped(runs, contender) for data, runs in grouped(records, _data).items()}
    shared = [name for name in next(iter(sets.values())) if all(name in of for of in sets.values())]
    if len(sets) < 2 or len(shared) < 2:
        return []
    written = []
    for x in ("queries", "seconds"):
        curves = {data: {name: _mean(of[name], x) for name in shared} for data, of in sets.items()}
        file = place / f"profiles-{x}.png"
        found = profile(costs(curves, lower_is_better=True))
        plot_profiles(found, file, cost=x, title="Data sets solved within a factor of the best")
        written.append(file)
    return written


def _mean(records: Sequence[Record], x: str) -> Curve:
    grid, mean, _ = mean_curve(records, x, "objective")
    return grid.tolist(), mean.tolist()


def _version(record: Record) -> str:
    method = record["config"]["method"]
    names = VERSIONS if method in VERSIONS else ABLATIONS
    return f"{_data(record)}, version {1 + names.index(method)}"


def _figure2(records: Sequence[Record], place: Path) -> list[Path]:
    return _panels(records, place / "figure2", panel=_version, title="MSVR and its variants")


def _figure3(records: Sequence[Record], place: Path) -> list[Path]:
    return _panels(
        records,
        place / "figure3",
        panel=lambda record: str(record["config"]["network"]),
        title="Networks",
    )


def _blocks(record: Record) -> str:
    return f"B1 = {record['config']['blocks_per_step']}"


def _figure4(records: Sequence[Record], place: Path) -> list[Path]:
    return _panels(records, place / "figure4", panel=contender, line=_blocks, title="Blocks a step")


def _many_tasks(records: Sequence[Record], place: Path) -> list[Path]:
    title = "100 tasks, B1 of them per step"
    written = _panels(records, place / "many-tasks", panel=_blocks, title=title)
    return [*written, _crossed(records, place / "many-tasks.md", row=contender, column=_blocks)]


def _gamma(record: Record) -> str:
    return f"γ = {record['config']['gamma']}"


def _gammas(records: Sequence[Record], place: Path) -> list[Path]:
    written = _panels(
        records, place / "gammas", panel=contender, line=_gamma, title="Corrections of u"
    )
    return [*written, _crossed(records, place / "gammas.md", row=_gamma, column=contender)]


def _crossed(
    records: Sequence[Record],
    path: Path,
    *,
    row: Callable[[Record], str],
    column: Callable[[Record], str],
) -> Path:
    parts = [
        f"{words}:\n\n{cross_table(records, key, row=row, column=column)}\n"
        for key, words in (("objective", "Training objective"), ("auc", "Test AUC"))
    ]
    write_text(path, "\n".join(parts))
    return path


def _table(key: str) -> Callable[[Sequence[Record], Path], list[Path]]:
    def write(records: Sequence[Record], place: Path) -> list[Path]:
        path = place / f"table-{key}.md"
        parts = ["At equal work:\n", markdown_table(records, key)]
        for x in ("samples", "queries", "seconds"):
            parts += [f"\nAt equal {x}:\n", markdown_table(records, key, equal=x)]
        write_text(path, "\n".join(parts) + "\n")
        curves = []
        for data, runs in grouped(records, _data).items():
            curves.append(place / f"curves-{data}.png")
            plot_axes(runs, curves[-1], title=data)
        return [path, *curves, *_profiles(records, place)]

    return write


def _who_chose(record: Record) -> str:
    # The runs with tuned settings have a constant step size, as in the paper.
    chosen = "default" if record["config"]["decay"] == "linear" else "tuned"
    return f"{contender(record)}, {chosen}"


def _defaults(records: Sequence[Record], place: Path) -> list[Path]:
    return [_crossed(records, place / "defaults.md", row=_who_chose, column=_data)]


_DRAWN: dict[str, Callable[[Sequence[Record], Path], list[Path]]] = {
    "figure1": _figure1,
    "figure2": _figure2,
    "figure3": _figure3,
    "figure4": _figure4,
    "table-auc": _table("auc"),
    "table-ap": _table("ap"),
    "many-tasks": _many_tasks,
    "gammas": _gammas,
    "defaults": _defaults,
}
