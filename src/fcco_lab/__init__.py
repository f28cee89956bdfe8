"""The laboratory: the ``fcco`` command, training runs, and pages on their results.

From Python: ``compare`` runs methods on a problem, ``write_report`` draws its records.
"""

from typing import TYPE_CHECKING

from fcco_lab.lazily import exported

if TYPE_CHECKING:
    from fcco_lab.comparison import compare
    from fcco_lab.report import write_report
    from fcco_lab.training.config import Config
    from fcco_lab.training.problem import Problem

__all__ = ["Config", "Problem", "compare", "write_report"]

__getattr__ = exported(
    __name__,
    {
        "Config": "fcco_lab.training.config",
        "Problem": "fcco_lab.training.problem",
        "compare": "fcco_lab.comparison",
        "write_report": "fcco_lab.report",
    },
)
