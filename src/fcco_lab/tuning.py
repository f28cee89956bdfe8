"""Finding lr, alpha and beta on held-out data, at points of a Sobol sequence."""

import json
import math
from collections.abc import Iterable
from dataclasses import fields, replace

from torch.quasirandom import SobolEngine

from fcco_lab.entries import entry_of
from fcco_lab.runs import Record, main_metric
from fcco_lab.training import Config

__all__ = ["as_toml", "best_first", "for_tuning", "sobol", "tuned_keys"]

HOLDOUT = 0.2
"""The fraction of the training set that is held out for tuning."""


def for_tuning(config: Config) -> Config:
    """The config with a part of the training set held out: tuning never uses the test set.

    Examples:
        >>> for_tuning(Config()).holdout, for_tuning(Config(holdout=0.5)).holdout
        (0.2, 0.5)
    """
    return config if config.holdout else replace(config, holdout=HOLDOUT)


def tuned_keys(method: str) -> tuple[str, ...]:
    """The coefficients of a method that are searched; gamma is chosen, not searched.

    Examples:
        >>> tuned_keys("msvrm-v2"), tuned_keys("soap"), tuned_keys("cross-entropy")
        (('lr', 'alpha', 'beta'), ('lr', 'beta'), ('lr',))
    """
    entry = entry_of(method)
    if entry is None:
        return ("lr",)
    return tuple(key for key in entry.coefficients if key != "gamma")


def sobol(config: Config, trials: int) -> list[Config]:
    """Settings that cover the ranges evenly; more trials go on where fewer ended.

    Examples:
        >>> few, more = sobol(Config(), 2), sobol(Config(), 5)
        >>> more[:2] == few, 1e-4 <= few[0].lr <= 1
        (True, True)
    """
    # Gradients are small, so good plain step sizes may be far above 1.
    largest_lr = 30.0 if config.update == "plain" else 1.0
    keys = tuned_keys(config.method)
    draws = SobolEngine(len(keys), scramble=True, seed=config.seed).draw(trials)
    points = []
    for draw in draws.tolist():
        settings = {}
        for key, share in zip(keys, draw, strict=True):
            value = 0.05 + 0.9 * share  # below 1, where gamma="theory" is singular
            if key == "lr":
                value = 1e-4 * (largest_lr / 1e-4) ** share
            settings[key] = float(f"{value:.3g}")  # more digits make no difference
        points.append(Config.from_dict(config.as_record() | settings))
    return points


def best_first(records: Iterable[Record]) -> list[Record]:
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
        if (field.name == "objective" or value != field.default) and field.name != "holdout":
            # JSON writes text, numbers and booleans as TOML does.
            lines.append(f"{field.name} = {json.dumps(value, ensure_ascii=False)}\n")
    return "".join(lines)
