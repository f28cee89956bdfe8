"""Losses of other libraries, if they are installed: torchsurv and LibAUC."""


__all__ = ["OTHER_LIBRARIES"]
from fcco_lab.benchmark.solver import Solver

OTHER_LIBRARIES: dict[str, Solver] = {}
