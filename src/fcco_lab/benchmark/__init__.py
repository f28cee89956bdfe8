"""An open benchmark: solvers at equal work on problems with a known optimum.

A problem is a function that returns a ``Problem``, a solver a ``Solver``; one of one's own is
named as ``module:name``, see the guide.
"""

from fcco_lab.benchmark.problem import Problem
from fcco_lab.benchmark.ranges import Choice, Log, Uniform
from fcco_lab.benchmark.solver import Solver
from fcco_lab.benchmark.task import Task

__all__ = ["Choice", "Log", "Problem", "Solver", "Task", "Uniform"]
