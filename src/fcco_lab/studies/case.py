"""One setting of a study."""

from dataclasses import dataclass
from typing import Any

__all__ = ["Case"]


@dataclass(frozen=True)
class Case:
    """One setting of a study.

    Args:
        study: the study's name.
        name: the unique name of the case.
        options: the arguments of the study's run function; they are stored with its result.
    """

    study: str
    name: str
    options: dict[str, Any]
