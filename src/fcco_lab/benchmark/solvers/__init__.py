"""The solvers by name: those of users today, every method of fcco's registry, and fcco's losses."""

from fcco_lab.benchmark.solver import Solver
from fcco_lab.benchmark.solvers.batch_losses import BATCH_LOSSES
from fcco_lab.benchmark.solvers.full_batch import FULL_BATCH
from fcco_lab.benchmark.solvers.optimizers import optimizers
from fcco_lab.benchmark.solvers.other_libraries import OTHER_LIBRARIES
from fcco_lab.benchmark.solvers.stagewise import STAGEWISE

__all__ = ["USUAL", "is_of_today", "solvers"]

USUAL = [
    "lbfgs",
    "in-batch",
    "in-batch-adam",
    "large-batch",
    "table-sgd",
    "table-adam",
    "sox",
    "sox-updated",
    "sox-adam",
    "msvrm-v1",
    "msvrm-v2",
    "msvrm-v3",
    "svrg",
]
"""Those that are run unless others are named."""


def solvers() -> dict[str, Solver]:
    """All of them; the registry is read when this is called, so a method of one's own is there."""
    return {**FULL_BATCH, **BATCH_LOSSES, **OTHER_LIBRARIES, **optimizers(), **STAGEWISE}


def is_of_today(name: str) -> bool:
    """Whether users have a solver without fcco; one that is not known here counts as ours."""
    found = solvers().get(name)
    return found is not None and found.today
