"""A setting of a run, written once: its default, its meaning and its valid values."""

from collections.abc import Callable, Sequence
from dataclasses import Field, field
from typing import Any, NamedTuple, TypeVar, get_args

from fcco_lab.choices import choose
from fcco_lab.named_objects import is_named

__all__ = ["NOT_NEGATIVE", "POSITIVE", "Check", "check", "describe", "kinds", "parse", "setting"]

Value = TypeVar("Value")


class Check(NamedTuple):
    """A condition on a value: the words that follow "must", and a test."""

    words: str
    holds: Callable[[Any], bool]


POSITIVE = Check("be positive", lambda value: value > 0)
NOT_NEGATIVE = Check("not be negative", lambda value: value >= 0)

_OWN = "; or your own as module:name"

_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


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
    made: Any = field(
        default=default, metadata={"help": help, "checks": checks, "choices": known, "own": own}
    )
    return made  # type: ignore[no-any-return]


def describe(of: Field[Any]) -> str:
    """The help text, with the choices."""
    words, otherwise = of.metadata["choices"](), _OWN if of.metadata["own"] else ""
    help: str = of.metadata["help"]
    return f"{help}: {', '.join(words)}{otherwise}." if words else help


def kinds(of: Field[Any]) -> tuple[type, ...]:
    """The types of a setting's values."""
    return get_args(of.type) or (of.type,)


def check(of: Field[Any], value: Any) -> None:
    """Raise a ``ValueError`` that names the setting if the value is invalid."""
    types = kinds(of)
    wanted = (*types, int) if float in types else types
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in types):
        expected = " or ".join(_WORDS[one] for one in types)
        raise ValueError(f"{of.name} must be {expected}, got {value!r}")
    own, known = of.metadata["own"], of.metadata["choices"]()
    if isinstance(value, str) and known and not (own and is_named(value)):
        otherwise = " or a number" if float in types else _OWN if own else ""
        choose(of.name, value, known, otherwise=otherwise)
    for words, holds in of.metadata["checks"]:
        if not holds(value):
            raise ValueError(f"{of.name} must {words}, got {value}")


def parse(of: Field[Any], text: str) -> Any:
    """The value written as ``text``; the text itself if it cannot be read, for ``check``."""
    kind = next((one for one in (bool, int, float) if one in kinds(of)), str)
    try:
        return {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        return text
