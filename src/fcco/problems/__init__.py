"""Problems with known constants, gradients and optimum, for theory and for tests."""

from fcco.problems.invariant_logistic import InvariantLogistic
from fcco.problems.linear_cox import LinearCox
from fcco.problems.phase_noise import PHI, PhaseNoise, Phi
from fcco.problems.policy_evaluation import PolicyEvaluation

__all__ = ["PHI", "InvariantLogistic", "LinearCox", "PhaseNoise", "Phi", "PolicyEvaluation"]
