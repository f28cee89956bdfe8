"""A user's own file as a data set: .npz with arrays, .csv or .parquet with named columns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fcco_lab.datasets.arrays import PARTS, by_query, classified, ranked, survival
from fcco_lab.datasets.catalogue import STEMS, Kind
from fcco_lab.datasets.headers import npz_shapes
from fcco_lab.datasets.npz import read_npz
from fcco_lab.datasets.official import reading
from fcco_lab.datasets.records import Classified, Ranked, Survival
from fcco_lab.datasets.splitting import split
from fcco_lab.datasets.tables import Table, read_table

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["is_own", "load_own"]

Data = Classified | Survival | Ranked

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
    if path.suffix.lower() == ".npz":
        if target or drop:
            raise ValueError(f"{path}: target and drop are for tables, not for npz files")
        return _from_npz(path)
    return _from_table(read_table(path), kind, target, drop)


def _from_npz(path: Path) -> tuple[Data, Data]:
    keys = npz_shapes(path)
    parts = PARTS if "x_train" in keys or "x_test" in keys else ("",)
    kind: Kind = "classes"
    for other, sign in (("survival", "e"), ("ranking", "q")):
        if f"{sign}{parts[0]}" in keys:
            kind = other  # type: ignore[assignment]
    arrays = read_npz(path, STEMS[kind], parts)
    read: Any = {"classes": classified, "survival": survival, "ranking": ranked}[kind]
    found = read(arrays, path, parts=parts)
    return _halves(path, *found) if len(found) == 1 else found


def _from_table(
    table: Table, wanted: Kind | None, target: Sequence[str], drop: Sequence[str]
) -> tuple[Data, Data]:
    kind, names = _targets(table, wanted, target)
    for name in (*names, *drop):
        table.check_column(name)
    aside = {*names, *drop, "split"}
    features = [name for name in table.columns if name not in aside]
    if not features:
        raise ValueError(f"{table.path} has no column left that is a feature")
    inputs = torch.stack([torch.from_numpy(table.numbers(name)) for name in features], dim=1)
    columns = _READERS[kind](table, *names)

    def rows(mask: Tensor) -> Data:
        with reading(table.path):
            return _RECORDS[kind](inputs[mask].float(), *(column[mask] for column in columns))

    if "split" not in table.columns or "split" in drop:
        parts = _halves(table.path, rows(torch.ones(len(table), dtype=torch.bool)))
        _check_classes(table, names, *parts)
        return parts
    words = [word.lower() for word in table.words("split")]
    for row, word in enumerate(words):
        if word not in ("train", "test"):
            raise table.wrong("split", row, f"it must be train or test, got {word!r}")
    mask = torch.tensor([word == "train" for word in words])
    if mask.all() or not mask.any():
        raise ValueError(f"{table.path}, column 'split': every row is {words[0]}")
    parts = rows(mask), rows(~mask)
    _check_classes(table, names, *parts)
    return parts


def _check_classes(table: Table, names: Sequence[str], *parts: Data) -> None:
    """Both parts have samples of every class, which is named as in the table."""
    for part, data in zip(("training", "test"), parts, strict=True):
        if isinstance(data, Classified):
            here = set(data.classes.tolist())
            codes = _classes(table, *names)[0].tolist()
            found = sorted(set(zip(codes, table.words(names[0]), strict=True)))
            if lacking := [repr(word) for code, word in found if code not in here]:
                several = ", ".join(lacking[:5]) + (", ..." if lacking[5:] else "")
                raise ValueError(
                    f"{table.path}, column {names[0]!r}: no {part} sample is of class {several}; "
                    "a class needs samples in both parts"
                )


def _targets(
    table: Table, wanted: Kind | None, target: Sequence[str]
) -> tuple[Kind, tuple[str, ...]]:
    """What the table is about, and the columns that say it."""
    if target:
        pair: Kind | None = wanted if wanted != "classes" else None
        kind: Kind | None = "classes" if len(target) == 1 and not pair else pair
        if kind is None or len(target) != len(TARGETS[kind][0]):
            raise ValueError(
                "target names one column (label), or two with an objective that needs two "
                f"(time,event for cox; grade,query for ndcg and listnet), got {','.join(target)}"
            )
        return kind, tuple(target)
    found = {
        kind: names
        for kind, choices in TARGETS.items()
        for names in choices
        if all(name in table.columns for name in names)
    }
    if not found:
        kinds = TARGETS if wanted is None else [wanted]
        said = "; ".join(" or ".join(",".join(n) for n in TARGETS[kind]) for kind in kinds)
        have = ", ".join(list(table.columns)[:20])
        raise ValueError(
            f"{table.path} has no target column ({said}); it has: {have}. Name yours with target "
            "(--target)"
        )
    best = wanted if wanted is not None and wanted in found else next(iter(found))
    return best, found[best]


def _classes(table: Table, label: str) -> tuple[Tensor]:
    words = table.words(label)
    for row, word in enumerate(words):
        if "." in word and word.replace(".", "", 1).lstrip("-").isdigit():
            raise table.wrong(label, row, f"a class is a word or a whole number, got {word}")
    if len(set(words)) < 2:
        raise ValueError(
            f"{table.path}, column {label!r}: every row is {words[0]!r}, nothing can be compared"
        )
    # 2 comes before 10, and words after numbers.
    keys = {word: (0, int(word), "") if _whole(word) else (1, 0, word) for word in words}
    places = {word: place for place, word in enumerate(sorted(keys, key=lambda word: keys[word]))}
    return (torch.tensor([places[word] for word in words]),)


def _whole(word: str) -> bool:
    return word.lstrip("-").isdigit()


def _times(table: Table, time: str, event: str) -> tuple[Tensor, Tensor]:
    times = torch.from_numpy(table.numbers(time)).float()
    if (times < 0).any():
        row = int((times < 0).nonzero()[0])
        raise table.wrong(time, row, f"a time must not be negative, got {times[row]:g}")
    meaning = {"1": True, "true": True, "0": False, "false": False}
    words = [word.lower() for word in table.words(event)]
    for row, word in enumerate(words):
        if word not in meaning:
            raise table.wrong(event, row, f"it must be 1 (event) or 0 (censored), got {word!r}")
    events = torch.tensor([meaning[word] for word in words])
    if not events.any():
        raise ValueError(f"{table.path}, column {event!r}: no event was observed, only censoring")
    return times, events


def _grades(table: Table, grade: str, query: str) -> tuple[Tensor, Tensor]:
    grades = torch.from_numpy(table.numbers(grade))
    wrong = (grades != grades.round()) | (grades < 0)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise table.wrong(grade, row, f"a grade is 0, 1, 2, ..., got {grades[row]:g}")
    if not grades.any():
        raise ValueError(f"{table.path}, column {grade!r}: every grade is 0, no row is relevant")
    words = table.words(query)
    places = {word: place for place, word in enumerate(dict.fromkeys(words))}
    return grades.long(), torch.tensor([places[word] for word in words])


_READERS: dict[Kind, Callable[..., tuple[Tensor, ...]]] = {
    "classes": _classes,
    "survival": _times,
    "ranking": _grades,
}
_RECORDS: dict[Kind, Callable[..., Data]] = {
    "classes": Classified,
    "survival": Survival,
    "ranking": by_query,
}


def _halves(path: Path, data: Data) -> tuple[Data, Data]:
    log.warning(
        "%s: it has no split into train and test; %d %% of it are held out as the test set",
        path,
        100 * TEST_SHARE,
    )
    try:
        return split(data, round(len(data) * (1 - TEST_SHARE)), seed=0)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
