"""fcco: finite-sum coupled compositional optimization, min_w (1/m) sum_i f_i(g_i(w)), in torch."""

from fcco import (
    data,
    distributed,
    losses,
    methods,
    metrics,
    objectives,
    problems,
    schedules,
    updates,
)
from fcco.kernel.queries import Queries
from fcco.kernel.safeguard import ChangeBound
from fcco.kernel.table import BlockTable
from fcco.methods import Coefficients, Point, Weights
from fcco.optim import BSGD, MSVRM, SOAP, SOX, CompositionalOptimizer, FreshPair, Variant
from fcco.problem import Objective, Probe, ScaledObjective
from fcco.problem.batches import (
    AnchorBatch,
    Batch,
    GroupBatch,
    LabelBatch,
    PairBatch,
    PointBatch,
    RiskBatch,
    TaskBatch,
    ViewBatch,
)

__version__ = "0.2.0"

__all__ = [
    "BSGD",
    "MSVRM",
    "SOAP",
    "SOX",
    "AnchorBatch",
    "Batch",
    "BlockTable",
    "ChangeBound",
    "Coefficients",
    "CompositionalOptimizer",
    "FreshPair",
    "GroupBatch",
    "LabelBatch",
    "Objective",
    "PairBatch",
    "Point",
    "PointBatch",
    "Probe",
    "Queries",
    "RiskBatch",
    "ScaledObjective",
    "TaskBatch",
    "Variant",
    "ViewBatch",
    "Weights",
    "__version__",
    "data",
    "distributed",
    "losses",
    "methods",
    "metrics",
    "objectives",
    "problems",
    "schedules",
    "updates",
]
