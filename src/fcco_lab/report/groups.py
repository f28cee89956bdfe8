"""Groups of runs that differ only in the seed, their labels, and their numbers."""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from fcco_lab.presentation.naming import contender, grouped, in_order
from fcco_lab.runs import Record, queries
from fcco_lab.training import Config

__all__ = ["Group", "groups"]

_NOT_SETTINGS = frozenset(
    # settings of identity, place and evaluation
    {"data", "method", "update", "seed", "evaluations", "diagnostics", "threads", "device"}
)
_SHORT = {"blocks_per_step": "B1", "samples_per_block": "B2"}


@dataclass(frozen=True)
class Group:
    """The runs of one contender with one setting on one data set."""

    label: str
    records: tuple[Record, ...]

    def having(self, status: str) -> tuple[Record, ...]:
        """The runs with this status."""
        return tuple(record for record in self.records if record["status"] == status)

    @property
    def measured(self) -> tuple[Record, ...]:
        """The runs of a mean: the finished ones or, if there are none yet, the running ones."""
        return self.having("finished") or self.having("running")

    def mean_and_deviation(self, key: str) -> tuple[float, float]:
        """Of a number at the end of the measured runs; NaN if there are too few.

        Examples:
            >>> runs = [{"status": "finished", "auc": auc, "curve": []} for auc in (0.5, 0.5)]
            >>> Group("SOX", tuple(runs)).mean_and_deviation("auc")
            (0.5, 0.0)
        """
        values = [value for record in self.measured if math.isfinite(value := _last(record, key))]
        mean = statistics.fmean(values) if values else math.nan
        return mean, statistics.stdev(values) if len(values) > 1 else math.nan


def _last(record: Record, key: str) -> float:
    """A number at the end of a run or, if it has no end yet, at its latest evaluation; else NaN."""
    point = record["curve"][-1] if record["curve"] else {}
    if key == "queries":
        return float(queries(point)) if point else math.nan
    value = record.get(key)
    if value is None:
        value = point.get(key)
    return math.nan if value is None else float(value)


def groups(records: Sequence[Record]) -> list[Group]:
    """The groups among the runs of one data set; labels contain only the differences.

    Examples:
        >>> def run(**config):
        ...     return {"config": {"method": "sox", "update": "adam", **config}}
        >>> runs = [run(seed=0, blocks_per_step=2), run(seed=1, blocks_per_step=2)]
        >>> [group.label for group in groups(runs)]
        ['SOX Adam']
        >>> [group.label for group in groups([*runs, run(seed=0, blocks_per_step=5)])]
        ['SOX Adam, B1=2', 'SOX Adam, B1=5']
        >>> [group.label for group in groups([*runs, run(blocks_per_step=2, one_slope=False)])]
        ['SOX Adam']
    """
    found = []
    for name, mine in grouped(records, contender).items():
        differing = _differing(mine)
        settings: dict[str, list[Record]] = {}
        for record in mine:
            parts = [_describe(option, _setting(record, option)) for option in differing]
            settings.setdefault(", ".join([name, *parts]), []).append(record)
        found += [Group(label, tuple(settings[label])) for label in in_order(settings)]
    return found


def _differing(records: Sequence[Record]) -> list[str]:
    options = dict.fromkeys(option for record in records for option in record["config"])
    return [
        option
        for option in options
        if option not in _NOT_SETTINGS
        and len({json.dumps(_setting(record, option)) for record in records}) > 1
    ]


def _setting(record: Record, option: str) -> object:
    """For a setting that an earlier version did not have, its runs have the default."""
    return record["config"].get(option, getattr(Config, option, None))


def _describe(option: str, value: object) -> str:
    if option in ("network", "objective") and value is not None:
        return str(value)  # which needs no name before it
    return f"{_SHORT.get(option, option)}={'none' if value is None else value}"
