"""Everything that decides a run, read from flags and TOML files and checked."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_args

from fcco.methods import REGISTRY, Method
from fcco_lab.entries import BASELINES

__all__ = ["CHOICES", "METHODS", "Config", "choose", "read_toml"]

METHODS = tuple(name for name, entry in REGISTRY.items() if not entry.needs_pair)
"""The registered methods that one inner sample is enough for."""

GAMMAS = ("age", "theory", "storm")
"""Corrections by name."""

CHOICES = {
    "method": (*METHODS, *BASELINES),
    "update": ("plain", "normalized", "adam", "amsgrad"),
    "objective": ("auc", "gap", "ap"),
    "decay": ("linear", "none"),
}
"""What the settings that are words may be."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """A run. The same config gives the same weights, bit for bit.

    Args:
        data: a data set by name (see ``fcco data``).
        train_size: how many training samples are used, the same share of every class; 0: all.
        holdout: the share of the training set that is tested on in place of the test set, as
            tuning must.
        objective: "auc" (moments in R^4), "gap" (the paper's form) or "ap" (average precision).
        network: by name (see ``fcco train --help``).
        method: one of ``METHODS`` or ``BASELINES``.
        update: the step rule.
        lr: step size.
        alpha: weight of the new gradient in z.
        beta: weight of the new value in u.
        gamma: the correction of u: "age", "theory", "storm" or a number.
        safeguard: bound the correction of z, where the method has one, by ``ChangeBound``.
        updated_slopes: slopes at u_t, see ``fcco.SOX``.
        one_slope: one slope for both points (version 2), see ``fcco.MSVRM``.
        snapshot_every: steps between exact passes (version 3); 0: one for every pass over the data.
        weight_decay: decoupled.
        decay: "linear" lowers lr to 0 over the run; "none" keeps it.
        blocks_per_step: B1; never more than there are blocks.
        samples_per_block: inner samples for each.
        shares: into which blocks are cut, so that up to as many ranks see one stream; the number
            of ranks must divide it, and it B1 (``fcco.data.BlockSampler``).
        steps: how many, unless ``work`` is used up before; 0: no limit.
        work: inputs passed forward + 2 x inputs passed backward, at most; 0: no limit. An input of
            an exact pass counts once, though it serves all tasks.
        evaluations: looks at the exact objective and the test set, evenly spaced.
        diagnostics: measure ||u - g(w)||^2, ||z - grad F(w)|| and ||grad F(w)|| at every look.
        seed: of the network and the batches.
        threads: of torch. Another number may round differently.
        device: "cpu", "cuda", ...

    Examples:
        >>> Config(data="usps", method="sox").name
        'usps cnn auc sox adam seed=0'
        >>> Config(method="msvrm-v2", lr=-1.0)
        Traceback (most recent call last):
        ValueError: lr must be positive, got -1.0
        >>> Config(method="bsgd", updated_slopes=True)
        Traceback (most recent call last):
        ValueError: updated_slopes: bsgd has no variant with updated slopes
    """

    data: str = "digits"
    train_size: int = 0
    holdout: float = 0.0
    objective: str = "auc"
    network: str = "cnn"
    method: str = "msvrm-v2"
    update: str = "adam"
    lr: float = 0.01
    alpha: float = 0.5
    beta: float = 0.5
    gamma: str | float = "age"
    safeguard: bool = True
    updated_slopes: bool = False
    one_slope: bool = False
    snapshot_every: int = 0
    weight_decay: float = 0.0
    decay: str = "linear"
    blocks_per_step: int = 5
    samples_per_block: int = 32
    shares: int = 1
    steps: int = 2000
    work: int = 0
    evaluations: int = 20
    diagnostics: bool = False
    seed: int = 0
    threads: int = 1
    device: str = "cpu"

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_type(field.name, getattr(self, field.name), field.type)
        for name, choices in CHOICES.items():
            choose(name, getattr(self, name), choices)
        if isinstance(self.gamma, str) and self.gamma not in GAMMAS:
            raise ValueError(f"gamma must be age, theory, storm or a number; got {self.gamma!r}")
        if not self.steps and not self.work:
            raise ValueError("a run needs a limit: steps or work")
        if not 0 <= self.holdout < 1:
            raise ValueError(f"holdout must lie in [0, 1), got {self.holdout}")
        positive = ("blocks_per_step", "samples_per_block", "shares", "evaluations", "threads")
        for name in ("lr", *positive):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("steps", "work", "train_size", "snapshot_every", "weight_decay"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if not abs(self.seed) < 2**62:
            raise ValueError(f"seed must be below 2**62 in size, got {self.seed}")
        if self.threads > 1024:
            raise ValueError(f"threads must be at most 1024, got {self.threads}")
        self._check_slopes()

    def _check_slopes(self) -> None:
        variants = {"updated_slopes": Method.updated, "one_slope": Method.with_one_slope}
        asked = [name for name in variants if getattr(self, name)]
        if len(asked) > 1:
            raise ValueError(f"{' and '.join(asked)} exclude each other")
        for name in asked:
            if self.method in BASELINES:
                raise ValueError(f"{name}: {self.method} takes no slopes")
            try:
                variants[name](REGISTRY[self.method].method)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None

    @property
    def name(self) -> str:
        """The run in words: every setting that is not the default, so no two runs share one."""
        words = [self.data, self.network, self.objective, self.method, self.update]
        told = {"data", "network", "objective", "method", "update", "seed"}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in told and value != field.default:
                words.append(f"{field.name}={value}")
        return " ".join([*words, f"seed={self.seed}"])

    def as_record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Config":
        """From plain values; an unknown key is an error that names the nearest one.

        Examples:
            >>> Config.of({"aplha": 0.5})
            Traceback (most recent call last):
            ValueError: unknown key 'aplha' (did you mean 'alpha'?)
        """
        known = [field.name for field in fields(cls)]
        for key in given:
            if key not in known:
                raise ValueError(f"unknown key {key!r}" + _nearest(key, known))
        return cls(**given)


def choose(name: str, value: str, choices: Iterable[str]) -> None:
    """Raise a ``ValueError`` that names the nearest unless ``value`` is one of the ``choices``.

    Examples:
        >>> choose("scale", "labtop", ("laptop", "paper"))
        Traceback (most recent call last):
        ValueError: scale must be one of laptop, paper; got 'labtop' (did you mean 'laptop'?)
    """
    known = list(choices)
    if value not in known:
        guess = _nearest(value, known)
        raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}{guess}")


def _nearest(word: str, known: list[str]) -> str:
    """A guess at what was meant, in brackets, or nothing."""
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _check_type(name: str, value: Any, kind: Any) -> None:
    wanted = get_args(kind) or (kind,)
    if float in wanted:
        wanted = (*wanted, int)
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool):
        words = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
        said = " or ".join(words[one] for one in get_args(kind) or (kind,))
        raise ValueError(f"{name} must be {said}, got {value!r}")


def read_toml(path: Path) -> dict[str, Any]:
    """The keys of a config file, checked to be known; the error names the file."""
    try:
        given = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"there is no config file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    try:
        Config.of(given)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return given
