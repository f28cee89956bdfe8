"""Records of runs: finding them, and their names in tables and legends.

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
from fcco_lab.baselines import BASELINES
from fcco_lab.entries import ENTRIES
from fcco_lab.results import Results

__all__ = [
    "AXES",
    "METRICS",
    "QUANTITIES",
    "Record",
    "contender_name",
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

_PREFIXES = {"normalized": "Ada"}
_SUFFIXES = {"adam": " Adam", "amsgrad": " AMSGrad", "projected": " projected"}


def contender_name(config: Mapping[str, Any]) -> str:
    """A method with its step rule, by the paper's name if there is one.

    Examples:
        >>> contender_name({"method": "msvrm-v2", "update": "normalized"})
        'AdaMSVRM-v2'
        >>> contender_name({"method": "sox", "update": "adam"})
        'SOX Adam'
        >>> contender_name({"method": "cross-entropy", "update": "adam"})
        'cross-entropy'
    """
    method, update = config["method"], config["update"]
    # A record may name a method that is not known here.
    from fcco_lab.presentation.methods import style_of

    name = style_of(str(method)).label
    if method in BASELINES:
        return name
    return _PREFIXES.get(update, "") + name + _SUFFIXES.get(update, "")


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

    A record that is found twice, in the directory of a run and in a file, is used once. A broken or
    incomplete record is left out, with a warning that names its file.
    """
    found: dict[str, Record] = {}
    for path in paths:
        if not path.exists():
            raise ValueError(f"{path} does not exist")
        files = [path] if path.is_file() else sorted(path.rglob("runs.jsonl"))
        single = [] if path.is_file() else sorted(path.rglob("record.json"))
        for file in (*files, *single):
            try:
                records = _read(file)
            except (OSError, ValueError) as error:  # not readable, or neither text nor JSON
                _leave_out(f"{file}: it cannot be read ({error})")
                continue
            for record in records:
                if flaw := flaw_of(record):
                    _leave_out(f"a record of {file}: {flaw}")
                else:
                    found.setdefault(record["name"], record)
    return list(found.values())


def _leave_out(what: str) -> None:
    warnings.warn(f"left out {what}", stacklevel=user_stacklevel())


def _read(file: Path) -> list[Any]:
    if file.name == "record.json":
        return [json.loads(file.read_text())]
    records = [record for record in Results(file).records.values() if "curve" in record]
    if not records and file.stat().st_size:
        raise ValueError("no line of it is a record")
    return records


def flaw_of(record: Any) -> str | None:
    """The reason why a record cannot be shown, if there is one."""
    if not isinstance(record, dict):
        return "it is none"
    for key, kind in {"name": str, "config": dict, "status": str, "curve": list}.items():
        if not isinstance(record.get(key), kind):
            return f"it has no {key}"
    for key in ("data", "method", "update"):
        if not isinstance(record["config"].get(key), str):
            return f"the config of {record['name']!r} has no {key}"
    if record["status"] not in ("finished", "running", "diverged"):
        return f"the status of {record['name']!r} is {record['status']!r}"
    before: dict[str, float] = {}
    for number, look in enumerate(record["curve"]):
        for key in ("step", "samples", "values", "gradients", "seconds"):
            here = look.get(key) if isinstance(look, dict) else None
            if not isinstance(here, int | float) or not before.get(key, 0) <= here < math.inf:
                return f"look {number} of {record['name']!r} has {here!r} for {key}"
            before[key] = here
    for part in (record, *record["curve"]):
        for key in QUANTITIES:
            if not isinstance(part.get(key), int | float | None):
                return f"{record['name']!r} has {part[key]!r} for {key}"
    return None
