"""Names of a package whose modules are imported when a name is first used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["exported"]


def exported(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package: importing it alone stays light, so that help is fast.

    Args:
        package: its ``__name__``.
        places: the module of each name.

    Examples:
        >>> exported("shapes", {"sqrt": "math"})("sqrt")(9)
        3.0
        >>> exported("shapes", {"sqrt": "math"})("cube")
        Traceback (most recent call last):
        AttributeError: module 'shapes' has no attribute 'cube'
    """

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(places[name]), name)

    return get
