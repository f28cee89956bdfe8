"""fcco: finite-sum coupled compositional optimization, min_w (1/m) sum_i f_i(g_i(w)), in torch."""

from fcco import data, distributed, methods, metrics, objectives, problems, schedules, updates
from fcco.batch import (
    AnchorBatch,
    Batch,
    GroupBatch,
    LabelBatch,
    PointBatch,
    TaskBatch,
    ViewBatch,
)
from fcco.coefficients import Coefficients, Weights
from fcco.objective import Objective
from fcco.optim import BSGD, MSVRM, SOAP, SOX, CompositionalOptimizer, FreshPair, Variant
from fcco.point import Point
from fcco.probe import Probe
from fcco.queries import Queries
from fcco.safeguard import ChangeBound
from fcco.scaled import ScaledObjective
from fcco.table import BlockTable

__version__ = "0.1.0"

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
    "Point",
    "PointBatch",
    "Probe",
    "Queries",
    "ScaledObjective",
    "TaskBatch",
    "Variant",
    "ViewBatch",
    "Weights",
    "__version__",
    "data",
    "distributed",
    "methods",
    "metrics",
    "objectives",
    "problems",
    "schedules",
    "updates",
]
