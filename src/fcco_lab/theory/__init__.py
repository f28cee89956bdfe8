"""The paper's theory: problems with known optima, and the rate of every theorem measured on one."""

from fcco_lab.theory.known_optima import InvariantLogistic, PolicyEvaluation
from fcco_lab.theory.phase_noise import PHI, PhaseNoise, Phi

__all__ = ["PHI", "InvariantLogistic", "PhaseNoise", "Phi", "PolicyEvaluation"]
