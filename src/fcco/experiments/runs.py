"""The records that runs leave: finding them, and what each is called in a table or a legend.

A record is a dictionary: ``name``, ``config`` (see ``training.Config``), ``status`` ("running",
"finished" or "diverged"), ``reason``, ``curve`` (one dictionary a look, the first at step 0) and,
at the end, ``objective``, ``auc`` and ``ap``.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fcco.experiments.entries import BASELINES, ENTRIES
from fcco.experiments.results import Results

__all__ = ["AXES", "Record", "contender_name", "queries", "read_runs"]

Record = dict[str, Any]

AXES = {
    "samples": "samples, as the paper counts them",
    "queries": "oracle queries, exact",
    "seconds": "CPU seconds of training",
}
"""What a curve is plotted against, and how it is written on the axis."""

_PREFIXES = {"normalized": "Ada"}
_SUFFIXES = {"adam": " Adam", "amsgrad": " AMSGrad", "projected": " projected"}


def contender_name(config: Mapping[str, Any]) -> str:
    """A method with its step rule, as the paper writes it where it has a name for it.

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
    name = ENTRIES[method].label if method in ENTRIES else str(method)
    if method in BASELINES:
        return name
    return _PREFIXES.get(update, "") + name + _SUFFIXES.get(update, "")


def queries(point: Mapping[str, Any]) -> int:
    """Values and gradients asked for up to a point of a curve."""
    return int(point["values"] + point["gradients"])


def read_runs(paths: Iterable[Path]) -> list[Record]:
    """The records under ``paths``: files of records, run directories, or directories of either.

    A record that is found twice, in a run's directory and in a file, is taken once.
    """
    found: dict[str, Record] = {}
    for path in paths:
        if not path.exists():
            raise ValueError(f"{path} does not exist")
        files = [path] if path.is_file() else sorted(path.rglob("runs.jsonl"))
        single = [] if path.is_file() else sorted(path.rglob("record.json"))
        for file in files:
            for record in Results(file).records.values():
                if "curve" in record:
                    found.setdefault(record["name"], record)
        for file in single:
            record = json.loads(file.read_text())
            found.setdefault(record["name"], record)
    return list(found.values())
