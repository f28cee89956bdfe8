"""The laboratory: the ``fcco`` command, training runs, and pages on their results.

From Python: ``compare`` runs methods on a problem, ``write_report`` draws its records.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fcco_lab.comparison import compare
    from fcco_lab.report import write_report
    from fcco_lab.training.config import Config
    from fcco_lab.training.problem import Problem

__all__ = ["Config", "Problem", "compare", "write_report"]

_MODULES = {
    "Config": "fcco_lab.training.config",
    "Problem": "fcco_lab.training.problem",
    "compare": "fcco_lab.comparison",
    "write_report": "fcco_lab.report",
}


def __getattr__(name: str) -> Any:
    # Imported when first used, so that ``fcco -h`` does not wait for torch.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
