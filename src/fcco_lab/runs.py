"""Records of runs: finding them, and what is wrong with those that cannot be shown.

A record is a dictionary: ``name``, ``config`` (see ``training.Config``), ``status`` ("running",
"finished" or "diverged"), ``reason``, ``curve`` (one dictionary per evaluation, from step 0 on),
``content`` (what the data is) and, at the end, ``objective`` and those of ``METRICS`` that were
measured. The page on the command line has the whole table.
"""

import json
import math
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fcco.optim.arguments import user_stacklevel
from fcco_lab.results import Results

__all__ = [
    "AXES",
    "METRICS",
    "QUANTITIES",
    "Record",
    "flaw_of",
    "main_metric",
    "queries",
    "read_runs",
]

Record = dict[str, Any]

AXES = {
    "samples": "samples, as the paper counts them",
    "queries": "oracle queries, exact",
    "seconds": "CPU seconds of training",
}
"""The horizontal axes of curves, with their labels."""

METRICS = {
    "auc": "test AUC",
    "ap": "test AP",
    "c_index": "test C-index",
    "ndcg": "test NDCG@10",
}
"""What is measured on the test set, with its label; higher is better, and a run has some of it."""

QUANTITIES = {"objective": "exact training objective", **METRICS}
"""The quantities of curves and tables, with their labels."""


def main_metric(record: Mapping[str, Any]) -> str:
    """The metric by which runs like this one are ranked.

    Examples:
        >>> main_metric({"objective": 0.1, "auc": 0.9, "ap": 0.8})
        'auc'
    """
    return next((key for key in METRICS if record.get(key) is not None), "auc")


def queries(point: Mapping[str, Any]) -> int:
    """Values and gradients evaluated up to a point of a curve."""
    return int(point["values"] + point["gradients"])


def read_runs(paths: Iterable[Path]) -> list[Record]:
    """The records under ``paths``: files of records, run directories, or directories of either.

    A record that is found twice, in the directory of a run and in a file, is used once; two that
    differ are both used, also under one name. A broken or incomplete record is left out, with a
    warning that names its file.
    """
    found: dict[str, Record] = {}
    for path in paths:
        if not path.exists():
            raise ValueError(f"{path} does not exist")
        files = [path]
        if path.is_dir():
            files = [*sorted(path.rglob("runs.jsonl")), *sorted(path.rglob("record.json"))]
        for file in files:
            try:
                records = _read(file)
            except (OSError, ValueError, RecursionError) as error:
                _leave_out(f"{file}: it cannot be read ({error})")
                continue
            for record in records:
                if flaw := flaw_of(record):
                    _leave_out(f"a record of {file}: {flaw}")
                else:
                    found.setdefault(json.dumps(record, sort_keys=True), record)
    return list(found.values())


def _leave_out(what: str) -> None:
    readable = what.encode(errors="backslashreplace").decode()
    warnings.warn(f"left out {readable}", stacklevel=user_stacklevel())


def _read(file: Path) -> list[Any]:
    if file.name == "record.json":
        return [json.loads(file.read_text())]
    results = Results(file)
    records = [record for record in results.records.values() if "curve" in record]
    if not records and file.stat().st_size:
        raise ValueError("no line of it is a record")
    for number in results.broken:
        _leave_out(f"line {number} of {file}: it is no record")
    return records


def flaw_of(record: Any) -> str | None:
    """The reason why a record cannot be shown, if there is one."""
    try:
        _check(record)
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "it has text that is not Unicode"
    except (ValueError, TypeError, RecursionError) as flaw:
        return str(flaw)
    return None


def _check(record: Any) -> None:
    if not isinstance(record, dict):
        raise ValueError("it is none")
    for key, kind in {"name": str, "config": dict, "status": str, "curve": list}.items():
        if not isinstance(record.get(key), kind):
            raise ValueError(f"it has no {key}")
    name, config = record["name"], record["config"]
    for key in ("data", "method", "update"):
        if not isinstance(config.get(key), str):
            raise ValueError(f"the config of {name!r} has no {key}")
    for key, setting in config.items():
        if not isinstance(setting, str | None) and not _is_number(setting):
            raise ValueError(f"the config of {name!r} has {setting!r:.80} for {key}")
    if record["status"] not in ("finished", "running", "diverged"):
        raise ValueError(f"the status of {name!r} is {record['status']!r}")
    before: dict[str, float] = {}
    for number, point in enumerate(record["curve"]):
        for key in ("step", "samples", "values", "gradients", "seconds"):
            value: Any = point.get(key) if isinstance(point, dict) else None
            if not _is_number(value) or not before.get(key, 0) <= value < math.inf:
                raise ValueError(f"evaluation {number} of {name!r} has {value!r:.80} for {key}")
            before[key] = value
    for part in (record, *record["curve"]):
        for key in (*QUANTITIES, "num_blocks", "train_size", "test_size"):
            if part.get(key) is not None and not _is_number(part[key]):
                raise ValueError(f"{name!r} has {part[key]!r:.80} for {key}")


def _is_number(value: Any) -> bool:
    """Also NaN and infinity, but no whole number that a float cannot hold."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**300)
