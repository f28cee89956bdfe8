"""The contenders of experiments: the registered methods, the usual alternatives, a user's own."""

from functools import lru_cache

from fcco.methods import REGISTRY, Entry, Method, find
from fcco_lab.baselines import BASELINES, Baseline
from fcco_lab.named_objects import is_named, load_named

__all__ = ["ENTRIES", "adopt", "entry_of"]

ENTRIES: dict[str, Baseline | Entry] = {**BASELINES, **REGISTRY}
"""All contenders by name, in the order of tables and legends."""

_ADOPTED: dict[str, Entry] = {}


def entry_of(name: str) -> Baseline | Entry:
    """The contender of a name, of a ``module:name``, or of what ``adopt`` returned.

    Examples:
        >>> entry_of("fcco.methods:SOX").coefficients
        ('lr', 'alpha', 'beta')
    """
    if name in _ADOPTED:
        return _ADOPTED[name]
    if is_named(name):
        return _own(name)
    return BASELINES[name] if name in BASELINES else find(name)


def adopt(method: Method | Entry) -> str:
    """Make a method of this program known to this process, and return its name in a config.

    Examples:
        >>> import fcco
        >>> adopt(fcco.methods.SOX)
        'python:sox'
    """
    entry = _entry("method", method)
    name = f"python:{entry.name}"
    _ADOPTED[name] = entry
    return name


@lru_cache
def _own(word: str) -> Entry:
    return _entry(f"method {word!r}", load_named("method", word))


def _entry(what: str, found: object) -> Entry:
    if isinstance(found, Entry):
        return found
    if not isinstance(found, Method):
        raise ValueError(
            f"{what} must be a fcco.methods.Method or Entry, got {type(found).__name__}"
        )
    return Entry(found)
