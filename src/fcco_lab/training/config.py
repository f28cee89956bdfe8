"""The settings of a run: one dataclass, from which flags and keys of TOML files are made."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import Field, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from fcco.methods import Method
from fcco_lab.choices import suggestion
from fcco_lab.entries import contender_names, entry_of
from fcco_lab.networks import NETWORKS
from fcco_lab.training.setting import NOT_NEGATIVE, POSITIVE, Check, check, parse, setting

__all__ = ["OF_OBJECTIVE", "Config", "choices_of", "read_toml"]

OF_OBJECTIVE = ("temperature", "bounded", "cross_entropy", "log_odds")
"""The settings of the objective auc-exp."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """A run. The same config gives the same weights, bit for bit.

    Examples:
        >>> Config(data="usps", method="sox").name
        'usps auc sox adam seed=0'
        >>> Config(method="msvrm-v2", lr=-1.0)
        Traceback (most recent call last):
        ValueError: lr must be positive, got -1.0
        >>> Config(method="bsgd", updated_slopes=True)
        Traceback (most recent call last):
        ValueError: updated_slopes: bsgd has no variant with updated slopes
    """

    data: str = setting(
        "digits",
        "A data set by name (usps, a9a, metabric, ...) or your own file: .npz, .csv, .parquet.",
    )
    target: str = setting(
        "",
        "Target columns of your own table, with commas: label; time,event (survival); grade,query "
        "(ranking). These are the defaults.",
    )
    drop: str = setting("", "Columns of your own table to leave out, with commas.")
    train_size: int = setting(
        0, "Training samples to use, the same share of every class; 0: all.", NOT_NEGATIVE
    )
    holdout: float = setting(
        0.0,
        "Share of the training set to hold out and test on instead of the test set.",
        Check("lie in [0, 1)", lambda share: 0 <= share < 1),
    )
    objective: str = setting(
        "auc",
        "auc: AUC by moments of the scores; auc-odds: by moments of log-odds; auc-exp: by "
        "exponentials; gap: by the gap of means, as the paper solves it; ap: average precision; "
        "cox: for survival data; ndcg and listnet: for rankings",
        choices=("auc", "auc-odds", "auc-exp", "gap", "ap", "cox", "ndcg", "listnet"),
        own=True,
    )
    temperature: float = setting(1.0, "Temperature T of auc-exp.", POSITIVE)
    bounded: bool = setting(True, "auc-exp is T log(1 + u_1 u_2); otherwise T log(u_1 u_2).")
    cross_entropy: float = setting(1.0, "Weight of cross-entropy in auc-exp.", NOT_NEGATIVE)
    log_odds: bool = setting(
        True, "auc-exp scores by log-odds of each class against the rest; otherwise by logits."
    )
    network: str = setting(
        "auto", "Network; auto: cnn for images, mlp for features", choices=("auto", *NETWORKS)
    )
    method: str = setting("msvrm-v2", "Method", choices=contender_names, own=True)
    update: str = setting("adam", "Step rule", choices=("plain", "normalized", "adam", "amsgrad"))
    lr: float = setting(0.01, "Step size.", POSITIVE)
    alpha: float = setting(0.5, "Weight of the new gradient in z, in (0, 1].")
    beta: str | float = setting(
        0.5, "Weight of the new value in u, in (0, 1], as a number or", choices=("auto",)
    )
    gamma: str | float = setting(
        "age", "Correction of u, by name or as a number", choices=("age", "theory", "storm")
    )
    safeguard: bool = setting(
        True, "Bound the correction of z by ChangeBound if the method has one."
    )
    updated_slopes: bool = setting(
        False, "Take slopes at u_t; see fcco.SOX. With auc-exp, methods that can always do."
    )
    one_slope: bool = setting(False, "Use one slope for both points (version 2); see fcco.MSVRM.")
    snapshot_every: int = setting(
        0,
        "Steps between exact passes (version 3); 0: one exact pass per epoch.",
        NOT_NEGATIVE,
    )
    weight_decay: float = setting(0.0, "Decoupled weight decay.", NOT_NEGATIVE)
    decay: str = setting(
        "linear", "Schedule of lr, down to 0 or constant", choices=("linear", "none")
    )
    blocks_per_step: int = setting(5, "Blocks (tasks) per step, B1.", POSITIVE)
    samples_per_block: int = setting(32, "Inner samples per block.", POSITIVE)
    shares: int = setting(
        1,
        "Number of shares the blocks are split into, so that up to as many processes see the same "
        "batches. The number of processes must divide it, and it must divide B1.",
        POSITIVE,
    )
    steps: int = setting(2000, "Number of steps, at most; 0: no limit but the work.", NOT_NEGATIVE)
    work: int = setting(
        0,
        "Inputs passed forward + 2 x inputs passed backward, at most; 0: no limit but the steps. "
        "An input of an exact pass counts once for all tasks.",
        NOT_NEGATIVE,
    )
    evaluations: int = setting(
        20, "Evaluations of the exact objective and the test set, evenly spaced.", POSITIVE
    )
    diagnostics: bool = setting(
        False, "Also measure the exact errors of u and z at every evaluation."
    )
    seed: int = setting(
        0,
        "Seed of the initial weights and the batches.",
        Check("be below 2**62 in size", lambda seed: abs(seed) < 2**62),
    )
    threads: int = setting(
        1,
        "Threads of torch; another number may round differently.",
        POSITIVE,
        Check("be at most 1024", lambda threads: threads <= 1024),
    )
    device: str = setting("cpu", "Device: cpu, cuda, ...")

    def __post_init__(self) -> None:
        for field in fields(self):
            check(field, getattr(self, field.name))
        if not self.steps and not self.work:
            raise ValueError("a run needs a limit: steps or work")
        self._check_slopes()

    def _check_slopes(self) -> None:
        if self.updated_slopes and self.one_slope:
            raise ValueError("updated_slopes and one_slope exclude each other")
        variants = {"updated_slopes": Method.updated, "one_slope": Method.with_one_slope}
        for name, change in variants.items():
            if getattr(self, name):
                entry = entry_of(self.method)
                if entry is None:
                    raise ValueError(f"{name}: {self.method} takes no slopes")
                try:
                    change(entry.method)
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None

    @property
    def of_log_odds(self) -> bool:
        """Whether scores are log-odds of each class against the rest, not logits."""
        return self.objective == "auc-odds" or (self.objective == "auc-exp" and self.log_odds)

    @property
    def usual_objective(self) -> str:
        """Of a method on classes: auc-exp, which measured best, but fails with stale slopes.

        Examples:
            >>> Config(method="sox").usual_objective, Config(method="msvrm-v3").usual_objective
            ('auc-exp', 'auc-odds')
        """
        entry = entry_of(self.method)
        if entry is None:
            return "auc"
        with suppress(ValueError):  # it has no slopes at u_t
            if not self.one_slope and entry.method.updated():
                return "auc-exp"
        return "auc-odds"

    @property
    def name(self) -> str:
        """The run in words: every setting that is not the default, so no two runs share one."""
        words = [self.data, self.objective, self.method, self.update]
        always = {"data", "objective", "method", "update", "seed"}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in always and value != field.default:
                alone = field.name == "network"
                words.append(value if alone else f"{field.name}={value}")
        return " ".join([*words, f"seed={self.seed}"])

    def as_record(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> "Config":
        """Read plain values; an unknown key is an error that names the nearest one.

        Examples:
            >>> Config.from_dict({"aplha": 0.5})
            Traceback (most recent call last):
            ValueError: unknown setting 'aplha' (did you mean 'alpha'?); fcco train -h lists them
        """
        _known(given)
        return cls(**given)

    @classmethod
    def parsed(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The same, with texts read as the values they stand for.

        Examples:
            >>> Config.parsed({"gamma": "0.5", "safeguard": "false", "data": "7", "lr": 1})
            {'gamma': 0.5, 'safeguard': False, 'data': '7', 'lr': 1}
        """
        known = _known(given)
        return {
            key: parse(known[key], value) if isinstance(value, str) else value
            for key, value in given.items()
        }


def choices_of(setting: str) -> Sequence[str]:
    """The valid words of a setting.

    Examples:
        >>> choices_of("decay")
        ('linear', 'none')
    """
    (field,) = (field for field in fields(Config) if field.name == setting)
    words: Sequence[str] = field.metadata["choices"]()
    return words


def _known(given: Iterable[str]) -> dict[str, Field[Any]]:
    """The fields by name, of which the keys must be some."""
    known = {field.name: field for field in fields(Config)}
    for key in given:
        if key not in known:
            near = suggestion(key, known)
            raise ValueError(f"unknown setting {key!r}{near}; fcco train -h lists them")
    return known


def read_toml(path: Path) -> dict[str, Any]:
    """The keys of a config file, checked to be known; the error names the file."""
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"there is no config file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    try:
        Config.from_dict(given)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return given
