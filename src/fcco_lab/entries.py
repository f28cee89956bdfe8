"""The contenders of experiments: the registered methods, the usual alternatives, a user's own."""

from fcco.methods import REGISTRY, Entry, Method, SlopeAt, find
from fcco_lab.named_objects import is_named, load_named

__all__ = ["BASELINES", "adopt", "contender_names", "entry_of"]

BASELINES = ("cross-entropy", "min-max")
"""The usual alternatives to a method: an ordinary loss with a torch optimizer."""

_ADOPTED: dict[str, Entry] = {}


def contender_names() -> tuple[str, ...]:
    """The registered methods that one inner sample is enough for, and the baselines.

    Examples:
        >>> contender_names()[0], contender_names()[-1]
        ('sox', 'min-max')
    """
    methods = [name for name, entry in REGISTRY.items() if entry.method.slope_at != SlopeAt.PAIR]
    return (*methods, *BASELINES)


def entry_of(name: str) -> Entry | None:
    """The method of a name, of a ``module:name``, or of what ``adopt`` returned; None: a baseline.

    Examples:
        >>> entry_of("fcco.methods:SOX").coefficients
        ('lr', 'alpha', 'beta')
    """
    if name in BASELINES:
        return None
    if is_named(name) and name not in _ADOPTED:
        _ADOPTED[name] = _as_entry(f"method {name!r}", load_named("method", name))
    return _ADOPTED[name] if name in _ADOPTED else find(name)


def adopt(method: Method | Entry) -> str:
    """Make a method of this program known to this process, and return its name in a config.

    Examples:
        >>> import fcco
        >>> adopt(fcco.methods.SOX)
        'python:sox'
    """
    entry = _as_entry("method", method)
    name = f"python:{entry.name}"
    _ADOPTED[name] = entry
    return name


def _as_entry(what: str, found: object) -> Entry:
    if isinstance(found, Entry):
        return found
    if not isinstance(found, Method):
        raise ValueError(
            f"{what} must be a fcco.methods.Method or Entry, got {type(found).__name__}"
        )
    return Entry(found)
