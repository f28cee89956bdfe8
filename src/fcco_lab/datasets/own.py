"""A user's own file as a data set: .npz with arrays, .csv or .parquet with named columns."""

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from fcco_lab.datasets.arrays import PARTS, READERS, by_query, read_npz, reading
from fcco_lab.datasets.records import Classified, Data, Kind, Survival
from fcco_lab.datasets.splitting import split
from fcco_lab.datasets.tables import Table

__all__ = ["is_own", "load_own"]

SUFFIXES = (".npz", ".csv", ".parquet")
TARGETS: dict[Kind, tuple[tuple[str, ...], ...]] = {
    "classes": (("label",), ("y",)),
    "survival": (("time", "event"),),
    "ranking": (("grade", "query"),),
}
"""The target columns of a table, where the user names none."""

TEST_SHARE = 0.2

log = logging.getLogger("fcco")


def is_own(data: str) -> bool:
    """Whether ``--data`` is a file, not a name of the catalogue.

    Examples:
        >>> is_own("patients.csv"), is_own("data/patients"), is_own("usps")
        (True, True, False)
    """
    return any(sign in data for sign in "./\\")  # no name of the catalogue has one


def load_own(
    path: str | Path,
    *,
    kind: Kind | None = None,
    target: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> tuple[Data, Data]:
    """Training and test part of a file: ``Classified``, ``Survival`` or ``Ranked`` by its content.

    An npz file has the keys of the named data sets (x_train y_train x_test y_test; t_* and e_*
    for survival, q_* for rankings), or the same without _train and _test. In a table every column
    is a feature that is not a target, ``split`` (train or test) or dropped. Without a split, a
    fifth is held out as the test part, always the same.

    Args:
        path: a .npz, .csv or .parquet file.
        kind: what is wanted, if the columns would allow several kinds.
        target: the target columns of a table: label; time, event; or grade, query.
        drop: columns of a table that are not features.
    """
    path = Path(path).expanduser()
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"data: {path} must end in {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise FileNotFoundError(f"data: there is no file {path}")
    if path.suffix.lower() != ".npz":
        return _read_table(path, kind, target, drop)
    if target or drop:
        raise ValueError(f"{path}: target and drop are for tables, not for npz files")
    arrays = read_npz(path)
    parts = PARTS if "x_train" in arrays or "x_test" in arrays else ("",)
    found = "survival" if f"e{parts[0]}" in arrays else "classes"
    if f"q{parts[0]}" in arrays:
        found = "ranking"
    first, *others = READERS[found](arrays, path, parts=parts)
    return (first, others[0]) if others else _hold_out(path, first)


def _hold_out(path: Path, data: Data) -> tuple[Data, Data]:
    words = "%s: it has no split into train and test; %d %% of it are held out as the test set"
    log.warning(words, path, 100 * TEST_SHARE)
    try:
        return split(data, round(len(data) * (1 - TEST_SHARE)), seed=0)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _read_table(
    path: Path, wanted: Kind | None, target: Sequence[str], drop: Sequence[str]
) -> tuple[Data, Data]:
    # Only names are read as text, because whole numbers in other columns must stay exact.
    names = {"classes": target, "survival": (), "ranking": target[1:]}[wanted or "classes"]
    table = Table(path, names=["split", *(names if target else ("label", "y", "query"))])
    kind, targets = _find_targets(table, wanted, target, drop)
    for name in (*targets, *drop):
        table.check_column(name)
    features = [name for name in table.columns if name not in {*targets, *drop, "split"}]
    if not features:
        raise ValueError(f"{path} has no column left that is a feature")
    inputs = _features(table, features)
    read, make = _KINDS[kind]
    columns = read(table, *targets)

    def take(rows: Tensor) -> Data:
        with reading(path):
            return make(inputs[rows], *(column[rows] for column in columns))

    if "split" not in table.columns or "split" in drop:
        train, test = _hold_out(path, take(torch.arange(len(inputs))))
    else:
        in_training = _read_split(table)
        train, test = take(in_training), take(~in_training)
    if isinstance(train, Classified) and isinstance(test, Classified):
        names = _in_order(table.names(targets[0]))
        for part, data in (("training", train), ("test", test)):
            lacking = sorted(set(range(len(names))) - set(data.classes.tolist()))
            if lacking:
                several = ", ".join(repr(names[place]) for place in lacking[:5])
                raise ValueError(
                    f"{path}, column {targets[0]!r}: no {part} sample is of class {several}; a "
                    "class needs samples in both parts"
                )
    return train, test


def _find_targets(
    table: Table, wanted: Kind | None, target: Sequence[str], drop: Sequence[str]
) -> tuple[Kind, tuple[str, ...]]:
    """What the table is about, and the columns that say it."""
    if target:
        kind = wanted or "classes"
        if len(target) != len(TARGETS[kind][0]):
            raise ValueError(
                "target names one column (label), or two with an objective that needs two "
                f"(time,event for cox; grade,query for ndcg and listnet), got {','.join(target)}"
            )
        for name in target:
            if target.count(name) > 1:
                raise ValueError(f"target names {name!r} twice")
            if name in drop:
                raise ValueError(f"both target and drop name {name!r}")
        return kind, tuple(target)
    found: dict[Kind, list[tuple[str, ...]]] = {}
    for kind, choices in TARGETS.items():
        for names in choices:
            if all(name in table.columns and name not in drop for name in names):
                found.setdefault(kind, []).append(names)
    if not found:
        kinds = TARGETS if wanted is None else [wanted]
        looked_for = "; ".join(" or ".join(map(",".join, TARGETS[kind])) for kind in kinds)
        raise ValueError(
            f"{table.path} has no target column ({looked_for}); it has: {table.listing}. Name "
            "yours with target (--target)"
        )
    kind = wanted if wanted in found else next(iter(found))
    first, *others = found[kind]
    if others:
        several = " and ".join(map(repr, first + others[0]))
        raise ValueError(
            f"{table.path} has columns {several}, which may both be the target: name it with "
            "target (--target), and drop the other (--drop) unless it is a feature"
        )
    return kind, first


def _features(table: Table, names: Sequence[str]) -> Tensor:
    exact = torch.from_numpy(table.matrix(names))
    rounded = exact.float()
    blurred = (rounded - exact).abs().amax(0) > 1e-3 * exact.std(0, correction=0)
    blurred &= exact.amax(0) > exact.amin(0)  # a constant column has nothing to lose
    for place in blurred.nonzero().flatten().tolist():
        message = "%s, column %r: float32 blurs it; subtract an offset"
        log.warning(message, table.path, names[place])
    return rounded


def _read_split(table: Table) -> Tensor:
    """Whether each row is for training."""
    words = [word.lower() for word in table.names("split")]
    known = [word in ("train", "test") for word in words]
    table.require("split", known, "it must be train or test")
    if len(set(words)) == 1:
        raise ValueError(f"{table.path}, column 'split': every row is {words[0]}")
    return torch.tensor([word == "train" for word in words])


def _classes(table: Table, label: str) -> tuple[Tensor]:
    words = table.names(label)
    if len(set(words)) < 2:
        raise ValueError(
            f"{table.path}, column {label!r}: every row is {words[0]!r}, nothing can be compared"
        )
    return (_places(words, _in_order(words)),)


def _survival(table: Table, time: str, event: str) -> tuple[Tensor, Tensor]:
    times = table.numbers(time, exact=True)  # rounded times would become ties
    events = table.numbers(event)
    table.require(time, times >= 0, "a time must not be negative")
    table.require(event, (events == 0) | (events == 1), "it must be 1 (event) or 0 (censored)")
    if not events.any():
        raise ValueError(f"{table.path}, column {event!r}: no event was observed, only censoring")
    return torch.from_numpy(times), torch.from_numpy(events).bool()


def _ranking(table: Table, grade: str, query: str) -> tuple[Tensor, Tensor]:
    grades = table.numbers(grade)
    table.require(grade, (grades >= 0) & (grades == grades.round()), "a grade is 0, 1, 2, ...")
    if not grades.any():
        raise ValueError(f"{table.path}, column {grade!r}: every grade is 0, no row is relevant")
    queries = table.names(query)
    return torch.from_numpy(grades).long(), _places(queries, dict.fromkeys(queries))


_KINDS: dict[Kind, tuple[Callable[..., tuple[Tensor, ...]], Callable[..., Data]]] = {
    "classes": (_classes, Classified),
    "survival": (_survival, Survival),
    "ranking": (_ranking, by_query),
}
"""What reads the target columns, and what is made of inputs and them."""


def _in_order(names: Iterable[str]) -> list[str]:
    """The different names: numbers by size, so that 2 comes before 10, then words.

    Examples:
        >>> _in_order(["b", "10", "2", "a", "2"])
        ['2', '10', 'a', 'b']
    """

    def key(name: str) -> tuple[float, str]:
        try:
            number = float(name)
        except ValueError:
            number = math.inf
        return (number if math.isfinite(number) else math.inf), name

    return sorted(set(names), key=key)


def _places(names: Sequence[str], order: Iterable[str]) -> Tensor:
    """The place of each name in ``order``."""
    places = {name: place for place, name in enumerate(order)}
    return torch.tensor([places[name] for name in names])
