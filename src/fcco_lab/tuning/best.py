"""The best of the settings that were tried, and the config file that keeps it."""

import json
import math
from collections.abc import Iterable
from dataclasses import fields

from fcco_lab.runs import Record, main_metric
from fcco_lab.training import Config

__all__ = ["as_toml", "ranked"]


def ranked(records: Iterable[Record]) -> list[Record]:
    """The finished runs, best on the held-out part first, then by the lower objective."""

    def score(record: Record) -> float:
        return float(record[main_metric(record)])

    whole = [r for r in records if r["status"] == "finished" and math.isfinite(score(r))]
    return sorted(whole, key=lambda record: (-score(record), record["objective"]))


def as_toml(config: Config) -> str:
    """A config file: the objective, and what is not the default, without the held-out part.

    Examples:
        >>> print(as_toml(Config(data="usps", lr=0.1, safeguard=False, holdout=0.2)), end="")
        data = "usps"
        objective = "auc"
        lr = 0.1
        safeguard = false
    """
    lines = []
    for field in fields(config):
        value = getattr(config, field.name)
        # Commands have a default of their own for the objective.
        told = field.name == "objective" or value != field.default
        if told and field.name != "holdout":
            # JSON writes text, numbers and booleans as TOML does.
            lines.append(f"{field.name} = {json.dumps(value, ensure_ascii=False)}\n")
    return "".join(lines)
