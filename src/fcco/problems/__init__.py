"""Problems whose constants, gradients and optimum are known: for theory and for tests."""

from fcco.problems.phase_noise import PHI, PhaseNoise, Phi

__all__ = ["PHI", "PhaseNoise", "Phi"]
