"""STORM's correction of z scaled by a constant, as MARS does on large networks; u as in SOX."""

from functools import partial

from fcco.methods.method import Method
from fcco.methods.point import Point
from fcco.methods.sox import MOVING_AVERAGE
from fcco.methods.weights import Scalar, WeightRow, Weights

__all__ = ["MARS", "mars"]


def scaled_storm(scale: float, alpha: Scalar) -> Weights:
    """z_t = (1 - alpha) z_{t-1} + alpha G(w_t) + scale (1 - alpha) (G(w_t) - G(w_{t-1}))."""
    return Weights(current=alpha, since_previous=scale * (1 - alpha))


def mars(scale: float) -> Method:
    """SOX with a share ``scale`` of STORM's correction: 0 is SOX, 1 is STORM for z."""
    gradient = WeightRow(partial(scaled_storm, scale), (Point.PREVIOUS,))
    return Method("mars", inner=MOVING_AVERAGE, gradient=gradient)


MARS = mars(scale=0.025)
"""With the scale that MARS uses."""
