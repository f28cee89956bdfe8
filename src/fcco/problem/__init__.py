"""The interface of a problem: the objective, the probe of a closure, and batches."""

from fcco.problem.objective import Objective, slope
from fcco.problem.probe import Closure, Closures, Probe
from fcco.problem.sampled import SampledObjective
from fcco.problem.scaled import ScaledObjective

__all__ = [
    "Closure",
    "Closures",
    "Objective",
    "Probe",
    "SampledObjective",
    "ScaledObjective",
    "slope",
]
