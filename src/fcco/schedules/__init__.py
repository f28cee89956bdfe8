"""Schedules: every theorem of the paper as a recipe, and the driver that runs it."""

from collections.abc import Callable

from fcco.schedules import literal, nonconvex, stagewise
from fcco.schedules.driver import Driver
from fcco.schedules.recipe import Recipe, Stage

__all__ = ["RECIPES", "Driver", "Recipe", "Stage"]

RECIPES: dict[str, Callable[..., Recipe]] = {
    "new:1": nonconvex.new_1,
    "new:1/linear": nonconvex.new_1_linear,
    "thm:1": nonconvex.thm_1,
    "thm:2": nonconvex.thm_2,
    "new:2": nonconvex.new_2,
    "new:2/linear": nonconvex.new_2_linear,
    "new:2/literal": literal.new_2_literal,
    "thm:3": nonconvex.thm_3,
    "new:3": nonconvex.new_3,
    "new:3/linear": nonconvex.new_3_linear,
    "new:3/literal": literal.new_3_literal,
    "thm:4": stagewise.thm_4,
    "thm:4+": stagewise.thm_4_plus,
    "thm:6": stagewise.thm_6,
    "new:4": stagewise.new_4,
    "new:5": stagewise.new_5,
    "new:6": stagewise.new_6,
    "adam": nonconvex.adam,
}
"""Recipes by the paper's labels; each is a function of m, B1, T, n, mu, epsilon and constants.

"/linear" is the branch of a theorem for affine slopes, with the fresh pair. "/literal" is that
branch as the paper prints it, an experiment."""
