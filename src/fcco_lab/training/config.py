"""The settings of a run: one dataclass, from which flags and keys of TOML files are made."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import Field, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

from fcco_lab.choices import choose, suggestion
from fcco_lab.entries import contender_names, entry_of
from fcco_lab.named_objects import is_named
from fcco_lab.networks import NETWORKS

__all__ = ["Config", "choices_of", "describe", "kinds", "read_toml"]

Value = TypeVar("Value")


class Check(NamedTuple):
    """A condition on a value: the words that follow "must", and a test."""

    words: str
    holds: Callable[[Any], bool]


POSITIVE = Check("be positive", lambda value: value > 0)
NOT_NEGATIVE = Check("not be negative", lambda value: value >= 0)
A_SHARE = Check("lie in [0, 1)", lambda value: 0 <= value < 1)
BELOW_2_62 = Check("be below 2**62 in size", lambda value: abs(value) < 2**62)

_OWN = "; or your own as module:name"

_KINDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def setting(
    default: Value,
    help: str,
    *checks: Check,
    choices: Sequence[str] | Callable[[], Sequence[str]] = (),
    own: bool = False,
) -> Value:
    """A dataclass field from which flags, keys of TOML files, ``--help`` and errors are made.

    Args:
        default: the default value.
        help: one sentence, without its full stop if there are choices, which are appended.
        checks: conditions on the value.
        choices: valid values, if it is a word; a function if they may become more.
        own: whether the user's own is a valid value, as module:name.
    """
    known = choices if callable(choices) else lambda: choices
    metadata = {"help": help, "checks": checks, "choices": known, "own": own}
    made: Value = field(default=default, metadata=metadata)
    return made


def describe(of: Field[Any]) -> str:
    """The help text of a setting, with its choices."""
    words, otherwise = of.metadata["choices"](), _OWN if of.metadata["own"] else ""
    help: str = of.metadata["help"]
    return f"{help}: {', '.join(words)}{otherwise}." if words else help


def kinds(of: Field[Any]) -> tuple[type, ...]:
    """The types of a setting's values."""
    return get_args(of.type) or (of.type,)


@dataclass(frozen=True, kw_only=True)
class Config:
    """A run. The same config gives the same weights, bit for bit.

    Examples:
        >>> Config(data="usps", method="sox").name
        'usps auc sox adam seed=0'
        >>> Config(method="msvrm-v2", lr=-1.0)
        Traceback (most recent call last):
        ValueError: lr must be positive, got -1.0
    """

    data: str = setting("digits", "A data set by name, or your own file: .npz, .csv, .parquet.")
    target: str = setting(
        "", "Target columns of your own table, with commas (label; time,event; grade,query)."
    )
    drop: str = setting("", "Columns of your own table to leave out, with commas.")
    train_size: int = setting(0, "Training samples to use, stratified; 0: all.", NOT_NEGATIVE)
    holdout: float = setting(0.0, "Share of the training set to test on instead.", A_SHARE)
    objective: str = setting(
        "auc",
        "Objective; cox is for survival data, ndcg and listnet for rankings, others for classes",
        choices=("auc", "auc-odds", "auc-exp", "gap", "ap", "cox", "ndcg", "listnet"),
        own=True,
    )
    temperature: float = setting(1.0, "Temperature T of auc-exp.", POSITIVE)
    cross_entropy: float = setting(1.0, "Weight of cross-entropy in auc-exp.", NOT_NEGATIVE)
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
    safeguard: bool = setting(True, "Bound the correction of z, if there is one, by ChangeBound.")
    updated_slopes: bool = setting(False, "Take slopes at u_t; with auc-exp always, if possible.")
    snapshot_every: int = setting(
        0, "Steps between exact passes (version 3); 0: one exact pass per epoch.", NOT_NEGATIVE
    )
    weight_decay: float = setting(0.0, "Decoupled weight decay.", NOT_NEGATIVE)
    decay: str = setting("linear", "Decay of lr to 0, or none", choices=("linear", "none"))
    blocks_per_step: int = setting(5, "Blocks (tasks) per step, B1.", POSITIVE)
    samples_per_block: int = setting(32, "Inner samples per block.", POSITIVE)
    shares: int = setting(
        1, "Parts of the blocks; any number of processes that divides it is the same run.", POSITIVE
    )
    steps: int = setting(2000, "Number of steps, at most; 0: no limit but the work.", NOT_NEGATIVE)
    work: int = setting(
        0, "Inputs passed forward + 2 x inputs passed backward, at most; 0: no limit.", NOT_NEGATIVE
    )
    evaluations: int = setting(20, "Evaluations, evenly spaced.", POSITIVE)
    seed: int = setting(0, "Seed of the initial weights and the batches.", BELOW_2_62)
    threads: int = setting(1, "Threads of torch; another number may round differently.", POSITIVE)
    device: str = setting("cpu", "Device: cpu, cuda, ...")

    def __post_init__(self) -> None:
        for one in fields(self):
            _check(one, getattr(self, one.name))
        if not self.steps and not self.work:
            raise ValueError("a run needs a limit: steps or work")

    @property
    def of_log_odds(self) -> bool:
        """Whether scores are log-odds of each class against the rest, not logits."""
        return self.objective in ("auc-odds", "auc-exp")

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
            entry.method.updated()
            return "auc-exp"
        return "auc-odds"

    @property
    def name(self) -> str:
        """The run in words: every setting that is not the default, so no two runs share one."""
        words = [self.data, self.objective, self.method, self.update]
        always = {"data", "objective", "method", "update", "seed"}
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name not in always and value != one.default:
                words.append(value if one.name == "network" else f"{one.name}={value}")
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
        known = [one.name for one in fields(cls)]
        for key in given:
            if key not in known:
                near = suggestion(key, known)
                raise ValueError(f"unknown setting {key!r}{near}; fcco train -h lists them")
        return cls(**given)


def _check(of: Field[Any], value: Any) -> None:
    """Raise a ``ValueError`` that names the setting if the value is invalid."""
    types = kinds(of)
    wanted = (*types, int) if float in types else types
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in types):
        expected = " or ".join(_KINDS[one] for one in types)
        raise ValueError(f"{of.name} must be {expected}, got {value!r}")
    own, known = of.metadata["own"], of.metadata["choices"]()
    if isinstance(value, str) and known and not (own and is_named(value)):
        otherwise = " or a number" if float in types else _OWN if own else ""
        choose(of.name, value, known, otherwise=otherwise)
    for words, holds in of.metadata["checks"]:
        if not holds(value):
            raise ValueError(f"{of.name} must {words}, got {value}")


def choices_of(setting: str) -> Sequence[str]:
    """The valid words of a setting.

    Examples:
        >>> choices_of("decay")
        ('linear', 'none')
    """
    (found,) = (one for one in fields(Config) if one.name == setting)
    words: Sequence[str] = found.metadata["choices"]()
    return words


def read_toml(path: Path) -> dict[str, Any]:
    """The keys of a config file, checked to be known; the error names the file."""
    try:
        given = tomllib.loads(path.read_text("utf-8"))
        Config.from_dict(given)
    except FileNotFoundError:
        raise ValueError(f"there is no config file {path}") from None
    except ValueError as error:  # TOML's and Unicode's are such errors too
        raise ValueError(f"{path}: {error}") from None
    return given
