"""fcco: finite-sum coupled compositional optimization, min_w (1/m) sum_i f_i(g_i(w)), in torch."""

from importlib import import_module
from typing import Any

from fcco import (
    data,
    distributed,
    losses,
    methods,
    objectives,
    schedules,
    updates,
)
from fcco.kernel.queries import Queries
from fcco.kernel.safeguard import ChangeBound
from fcco.kernel.table import Table
from fcco.methods import Coefficients, Point, Weights
from fcco.optim import BSGD, MSVRM, SOAP, SOX, SVRG, CompositionalOptimizer, FreshPair, Variant
from fcco.problem import Objective, Probe, ScaledObjective
from fcco.problem.batches import Batch, GroupBatch, PairBatch, PointBatch, ViewBatch

__version__ = "0.3.0.dev0"

__all__ = [
    "BSGD",
    "MSVRM",
    "SOAP",
    "SOX",
    "SVRG",
    "Batch",
    "ChangeBound",
    "Coefficients",
    "CompositionalOptimizer",
    "FreshPair",
    "GroupBatch",
    "Objective",
    "PairBatch",
    "Point",
    "PointBatch",
    "Probe",
    "Queries",
    "ScaledObjective",
    "Table",
    "Variant",
    "ViewBatch",
    "Weights",
    "__version__",
    "data",
    "distributed",
    "losses",
    "methods",
    "objectives",
    "schedules",
    "updates",
]


def __getattr__(name: str) -> Any:
    if name == "estimators":  # imported at its first use, because it needs scikit-learn
        return import_module("fcco.estimators")
    if name == "metrics":
        raise AttributeError(
            "fcco.metrics is gone since 0.3: use objective.metric(scores), as "
            "fcco.objectives.Cox(times, events).metric(scores), or torchmetrics"
        )
    if name == "problems":
        raise AttributeError("fcco.problems is gone since 0.3: see fcco_lab.theory")
    if name == "testing":
        raise AttributeError(
            "fcco.testing is gone since 0.3: it is tests/support of the repository, see "
            "CONTRIBUTING.md"
        )
    if name in ("AnchorBatch", "LabelBatch", "RiskBatch", "TaskBatch"):
        raise AttributeError(f"fcco.{name} is gone since 0.3: see fcco.PairBatch")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
